// The process group of an engine: its leader, and whoever it started. A leader that ends does not end
// its group, and what is left of the group holds the memory still (rule U6: the whole group).
//
// A member is recognised by group number, user and start time, each after its pidfd is held, so that
// no other process can be meant. Any thread; a call reads all of /proc (milliseconds).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace tandem::service {

struct ProcessGroup {
  pid_t leader = 0;  // 0: none
  uid_t uid = 0;
  uint64_t start_ticks = 0;  // of the leader
};
// Of a living process that leads its own group; {} when it has ended.
ProcessGroup process_group_of(pid_t leader);

// What the living members hold. Swapped pages count as anonymous: they are not given up.
struct GroupMemory {
  int64_t members = 0;
  int64_t anonymous_bytes = 0;
  int64_t file_bytes = 0;
  int64_t peak_bytes = 0;  // the most that each ever held, summed
  std::vector<pid_t> pids = {};
  // Of the same pool, for these processes, by a device's driver (service/driver_memory.h); in no other figure.
  int64_t driver_bytes = 0;
  bool driver_unknown = false;  // there is such a device, and its driver does not say
};
GroupMemory group_memory(const ProcessGroup& group);

// Sends the signal to every living member; returns how many there are. 0 as the number only counts.
int64_t signal_group(const ProcessGroup& group, int number);

}  // namespace tandem::service
