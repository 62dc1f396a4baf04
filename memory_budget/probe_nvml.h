// What the NVIDIA driver's management library says, when there is one: whose processes hold device
// memory, and its answer about the device's size, which on integrated parts is never a capacity
// (judge_device_memory). The library is found at run time; nothing of it is needed to build.
//
// Not for the guard's hot path: calls may block for minutes on a host that wedges. One owner.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "memory_budget/probe.h"

namespace tandem::budget {

struct DeviceProcess {
  int64_t pid = 0;
  int64_t bytes = -1;  // -1: the driver does not say
};
struct DeviceReading {
  DeviceAnswer answer;
  std::string answer_error;  // the library's words when it has no answer
  std::vector<DeviceProcess> processes;
  bool has_processes = false;
};

class NvmlProbe {
 public:
  // Errors: not_found (no library, no device: a host without), unavailable (the library does not start),
  // corrupt (it lacks what every known version has).
  static Result<std::unique_ptr<NvmlProbe>> open(const std::string& library = "libnvidia-ml.so.1");
  ~NvmlProbe();
  NvmlProbe(const NvmlProbe&) = delete;
  NvmlProbe& operator=(const NvmlProbe&) = delete;

  [[nodiscard]] size_t devices() const { return devices_.size(); }
  // `integrated` is the runtime's attribute, where known. device < devices().
  DeviceReading read(size_t device, bool integrated);

 private:
  struct Calls;
  NvmlProbe(std::unique_ptr<Calls> calls, void* library);

  std::unique_ptr<Calls> calls_;
  void* library_;
  bool started_ = false;
  std::vector<void*> devices_;
};

// Bytes that the driver counts for any of these processes, over all devices read.
int64_t device_bytes_of(const DeviceReading& reading, const ProcessTree& tree);

}  // namespace tandem::budget
