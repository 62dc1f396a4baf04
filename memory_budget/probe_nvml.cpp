#include "memory_budget/probe_nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

namespace tandem::budget {
namespace {

constexpr unsigned kSuccess = 0;
constexpr unsigned kInsufficientSize = 7;
constexpr unsigned kDevicesMax = 64;
constexpr unsigned kProcessesMax = 4096;
constexpr uint64_t kNotAvailable = ~uint64_t{0};

// The library's own layouts, stable since its versioned calls exist.
struct MemoryInfo {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct ProcessInfo {  // v2 and v3
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};
static_assert(sizeof(ProcessInfo) == 24);

}  // namespace

struct NvmlProbe::Calls {
  unsigned (*init)() = nullptr;
  unsigned (*shutdown)() = nullptr;
  unsigned (*count)(unsigned*) = nullptr;
  unsigned (*handle)(unsigned, void**) = nullptr;
  unsigned (*memory)(void*, MemoryInfo*) = nullptr;
  unsigned (*processes)(void*, unsigned*, ProcessInfo*) = nullptr;  // may be missing in old ones
  const char* (*error_text)(unsigned) = nullptr;

  [[nodiscard]] std::string words(unsigned code) const {
    const char* text = error_text == nullptr ? nullptr : error_text(code);
    return text == nullptr ? "code " + std::to_string(code) : text;
  }
};

NvmlProbe::NvmlProbe(std::unique_ptr<Calls> calls, void* library)
    : calls_(std::move(calls)), library_(library) {}

NvmlProbe::~NvmlProbe() {
  if (started_) calls_->shutdown();
  ::dlclose(library_);
}

Result<std::unique_ptr<NvmlProbe>> NvmlProbe::open(const std::string& library) {
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return make_error(Errc::not_found, "no " + library + " on this host");
  std::unique_ptr<NvmlProbe> probe(new NvmlProbe(std::make_unique<Calls>(), handle));
  Calls& calls = *probe->calls_;
  const auto find = [handle](const char* name, auto& target) {
    target = reinterpret_cast<std::remove_reference_t<decltype(target)>>(::dlsym(handle, name));
    return target != nullptr;
  };
  const bool complete = find("nvmlInit_v2", calls.init) && find("nvmlShutdown", calls.shutdown) &&
                        find("nvmlDeviceGetCount_v2", calls.count) &&
                        find("nvmlDeviceGetHandleByIndex_v2", calls.handle) &&
                        find("nvmlDeviceGetMemoryInfo", calls.memory);
  if (!complete) return make_error(Errc::corrupt, library + " lacks calls of every known version");
  find("nvmlErrorString", calls.error_text);
  if (!find("nvmlDeviceGetComputeRunningProcesses_v3", calls.processes)) {
    find("nvmlDeviceGetComputeRunningProcesses_v2", calls.processes);
  }
  if (const unsigned code = calls.init(); code != kSuccess) {
    return make_error(Errc::unavailable, library + " does not start: " + calls.words(code));
  }
  probe->started_ = true;
  unsigned count = 0;
  if (calls.count(&count) != kSuccess || count == 0) {
    return make_error(Errc::not_found, library + " knows no device");
  }
  for (unsigned i = 0; i < std::min(count, kDevicesMax); ++i) {
    void* device = nullptr;
    if (calls.handle(i, &device) == kSuccess) probe->devices_.push_back(device);
  }
  return probe;
}

DeviceReading NvmlProbe::read(size_t device, bool integrated) {
  CHECK(device < devices_.size());
  DeviceReading reading;
  reading.answer = {.present = true, .integrated = integrated};
  MemoryInfo memory{};
  if (const unsigned code = calls_->memory(devices_[device], &memory); code == kSuccess) {
    reading.answer.success = true;
    reading.answer.total_bytes =
        static_cast<int64_t>(std::min<unsigned long long>(memory.total, INT64_MAX));
  } else {
    reading.answer_error = calls_->words(code);
  }
  if (calls_->processes == nullptr) return reading;
  // Processes come and go between the question for their number and the one for the list.
  std::vector<ProcessInfo> list(64);
  unsigned code = kInsufficientSize;
  unsigned count = 0;
  while (code == kInsufficientSize && list.size() <= kProcessesMax) {
    count = static_cast<unsigned>(list.size());
    code = calls_->processes(devices_[device], &count, list.data());
    if (code == kInsufficientSize) list.resize(list.size() * 2);
  }
  if (code != kSuccess) return reading;
  reading.has_processes = true;
  list.resize(std::min<size_t>(count, list.size()));
  for (const ProcessInfo& each : list) {
    const bool known = each.used_bytes != kNotAvailable && each.used_bytes <= INT64_MAX;
    reading.processes.push_back({.pid = each.pid, .bytes = known ? static_cast<int64_t>(each.used_bytes) : -1});
  }
  return reading;
}

int64_t device_bytes_of(const DeviceReading& reading, const ProcessTree& tree) {
  int64_t bytes = 0;
  for (const DeviceProcess& each : reading.processes) {
    const bool ours = std::any_of(tree.processes.begin(), tree.processes.end(),
                                  [&](const TreeProcess& p) { return p.stat.pid == each.pid; });
    if (ours && each.bytes > 0 && bytes <= INT64_MAX - each.bytes) bytes += each.bytes;
  }
  return bytes;
}

}  // namespace tandem::budget
