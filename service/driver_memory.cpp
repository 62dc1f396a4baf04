#include "service/driver_memory.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tandem::service {
namespace {

// Without the runtime's word a small number (8128 MiB was seen on an integrated part) is a card's.
bool shares_memory(const budget::DeviceReading& reading, int64_t mem_total_bytes) {
  switch (budget::judge_device_memory(reading.answer, mem_total_bytes)) {
    case budget::DeviceMemoryKind::not_supported:
    case budget::DeviceMemoryKind::whole_host:
    case budget::DeviceMemoryKind::implausible: return true;
    case budget::DeviceMemoryKind::none:
    case budget::DeviceMemoryKind::discrete: return false;
  }
  return false;
}

}  // namespace

std::unique_ptr<DriverMemory> DriverMemory::open(Options options, const Clock& clock) {
  auto probe = budget::NvmlProbe::open(options.library);
  if (!probe.ok()) return nullptr;
  std::vector<size_t> devices;
  for (size_t i = 0; i < (*probe)->devices(); ++i) {
    if (shares_memory((*probe)->read(i, false), options.mem_total_bytes)) devices.push_back(i);
  }
  if (devices.empty()) return nullptr;
  return std::unique_ptr<DriverMemory>(new DriverMemory(std::move(options), clock, std::move(*probe), std::move(devices)));
}

DriverMemory::DriverMemory(Options options, const Clock& clock, std::unique_ptr<budget::NvmlProbe> probe,
                           std::vector<size_t> devices)
    : options_(std::move(options)),
      clock_(clock),
      probe_(std::move(probe)),
      devices_(std::move(devices)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  CHECK(wake_.valid());
  ask();
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

DriverMemory::~DriverMemory() {
  thread_.request_stop();
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

void DriverMemory::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    pollfd poll{.fd = wake_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&poll, 1, static_cast<int>(options_.period.count())) == 0) ask();
  }
}

void DriverMemory::ask() {
  bool known = false;
  std::map<int64_t, int64_t> bytes;
  for (const size_t device : devices_) {
    const budget::DeviceReading reading = probe_->read(device, true);
    known = known || reading.has_processes;
    for (const budget::DeviceProcess& process : reading.processes) {
      bytes[process.pid] += std::max<int64_t>(process.bytes, 0);  // -1: listed, and no more is said
    }
  }
  const MutexLock lock(mutex_);
  known_ = known;
  asked_ = clock_.now();
  bytes_ = std::move(bytes);
}

DriverMemory::Held DriverMemory::of(const std::vector<pid_t>& pids) const {
  const MutexLock lock(mutex_);
  Held held{.known = known_ && clock_.now() - asked_ <= options_.fresh};
  if (!held.known) return held;
  for (const pid_t pid : pids) {
    const auto at = bytes_.find(pid);
    if (at == bytes_.end()) continue;
    held.listed = true;
    held.bytes += at->second;
  }
  return held;
}

}  // namespace tandem::service
