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
#include "memory_budget/probe.h"
#include "memory_budget/restart.h"
#include "service/control_page.h"
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
  // The largest processes that are none of ours.
  virtual std::vector<budget::Holder> holders(const std::vector<pid_t>& ours) = 0;
  [[nodiscard]] virtual const budget::LevelFloors& floors() const = 0;
  // A signal that the guard sent since the last call.
  struct GuardStop {
    budget::Role role = budget::Role::optional_model;
  };
  virtual std::optional<GuardStop> guard_stop() { return std::nullopt; }
};

// `page` may be null. Error: io when /proc/meminfo cannot be read.
Result<std::unique_ptr<HostView>> make_host_view(const budget::LevelFloors& floors,
                                                 const ControlPage* page);

// A device draws on the host's memory: the driver says so by having no memory of its own to tell of.
bool device_shares_memory(int64_t mem_total_bytes);

}  // namespace tandem::service
