// HostView: what the restart machine sees of the host, from one look a few times a second: memory, free
// blocks, the guard's level, and who holds the rest. The level is the guard's while it reports; without
// one it comes from our own samples through the same machine (memory_budget/levels.h).
//
// Supervisor's thread only. Tests bring a host of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "memory_budget/guard.h"
#include "memory_budget/probe.h"
#include "memory_budget/restart.h"
#include "service/control_page.h"
#include "service/driver_memory.h"
#include "service/process_group.h"

namespace tandem::service {

class HostView {
 public:
  virtual ~HostView() = default;
  // Without tenants and holders.
  virtual budget::HostSight look(int64_t now_ms) = 0;
  // Of the kernel's killer, since boot.
  [[nodiscard]] virtual int64_t oom_kills() const = 0;
  virtual GroupMemory memory_of(const ProcessGroup& group) = 0;
  // These have ended, and the driver holds memory for one of them still (rule U6.3).
  [[nodiscard]] virtual bool driver_holds(const std::vector<pid_t>&) const { return false; }
  // The largest processes that are none of ours.
  virtual std::vector<budget::Holder> holders(const std::vector<pid_t>& ours) = 0;
  [[nodiscard]] virtual const budget::LevelFloors& floors() const = 0;
  // A signal that the guard sent since the last call.
  struct GuardStop {
    budget::Role role = budget::Role::optional_model;
    std::string how;  // with its numbers, for people
  };
  virtual std::optional<GuardStop> guard_stop() { return std::nullopt; }
};

// `page` and `driver` may be null. Error: io when /proc/meminfo cannot be read.
Result<std::unique_ptr<HostView>> make_host_view(const budget::LevelFloors& floors, const ControlPage* page,
                                                 const DriverMemory* driver);

// For an incident: "stopped by the guard (kill, black) with 3.9 GiB available".
std::string guard_stop_text(const std::string& who, budget::GuardActionKind action, budget::GuardReason reason,
                            int64_t available_bytes);

}  // namespace tandem::service
