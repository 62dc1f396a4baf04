// DriverMemory: what a device's driver holds of the host's own memory for our processes, on boxes where both
// share one pool. Such memory is in no counter of the kernel (rules U1, U6.3): an engine's footprint and
// the proof that it came back need the driver's own list of processes. Of a card with memory of its own
// nothing is counted here.
//
// A thread of its own asks once a period, because the driver may take minutes to answer on a host that is
// about to wedge; of() never waits. Any thread. The end waits for a question that is under way.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "memory_budget/probe_nvml.h"

namespace tandem::service {

class DriverMemory {
 public:
  struct Options {
    int64_t mem_total_bytes = 0;
    std::string library = "libnvidia-ml.so.1";
    std::chrono::milliseconds period = std::chrono::milliseconds(500);
    std::chrono::milliseconds fresh = std::chrono::seconds(5);  // older answers say nothing
  };
  // Null: no driver, or no device that draws on the host's memory.
  static std::unique_ptr<DriverMemory> open(Options options, const Clock& clock);
  ~DriverMemory();
  DriverMemory(const DriverMemory&) = delete;
  DriverMemory& operator=(const DriverMemory&) = delete;

  struct Held {
    bool known = false;  // the driver lists processes, and said so lately
    bool listed = false;  // one of them is in its list
    int64_t bytes = 0;
  };
  [[nodiscard]] Held of(const std::vector<pid_t>& pids) const;

 private:
  DriverMemory(Options options, const Clock& clock, std::unique_ptr<budget::NvmlProbe> probe,
               std::vector<size_t> devices);
  void ask();
  void run(const std::stop_token& stop);

  const Options options_;
  const Clock& clock_;
  const std::unique_ptr<budget::NvmlProbe> probe_;  // the thread's, once it runs
  const std::vector<size_t> devices_;               // that share the pool
  Fd wake_;
  mutable Mutex mutex_;
  bool known_ TANDEM_GUARDED_BY(mutex_) = false;
  SteadyTime asked_ TANDEM_GUARDED_BY(mutex_){};
  std::map<int64_t, int64_t> bytes_ TANDEM_GUARDED_BY(mutex_);  // by process
  std::jthread thread_;
};

}  // namespace tandem::service
