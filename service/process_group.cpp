#include "service/process_group.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "memory_budget/probe.h"
#include "service/process.h"

namespace tandem::service {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

// "VmHWM:    1234 kB"; 0 when there is no such line.
int64_t high_water_bytes(std::string_view status) {
  constexpr std::string_view kField = "\nVmHWM:";
  const size_t at = status.find(kField);
  if (at == std::string_view::npos) return 0;
  const size_t digits = status.find_first_not_of(" \t", at + kField.size());
  int64_t kib = 0;
  if (digits != std::string_view::npos) {
    (void)std::from_chars(status.data() + digits, status.data() + status.size(), kib);
  }
  return kib * 1024;
}

// The zombie of a leader that nobody has collected holds nothing.
bool is_member(const ProcessGroup& group, const std::string& folder, char* buffer, size_t size) {
  const Fd file(::open((folder + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  budget::ProcessStat stat;
  return file.valid() && ::fstat(file.get(), &info) == 0 &&
         budget::parse_process_stat(budget::read_whole(file.get(), buffer, size), stat) &&
         stat.group == group.leader && stat.start_ticks >= group.start_ticks &&
         info.st_uid == group.uid && stat.state != 'Z' && stat.state != 'X';
}

// Calls `use` for each member with its pid and its folder under /proc.
void for_members(const ProcessGroup& group,
                 const std::function<void(pid_t, const std::string&)>& use) {
  if (group.leader <= 0) return;
  const std::unique_ptr<DIR, CloseDirectory> proc(::opendir("/proc"));
  std::array<char, 4096> buffer;
  while (proc != nullptr) {
    const dirent* entry = ::readdir(proc.get());  // NOLINT: a stream of our own
    if (entry == nullptr) return;
    const std::string_view name(entry->d_name);
    pid_t pid = 0;
    const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (code != std::errc() || end != name.data() + name.size()) continue;
    const std::string folder = "/proc/" + std::string(name);
    if (is_member(group, folder, buffer.data(), buffer.size())) use(pid, folder);
  }
}

}  // namespace

ProcessGroup process_group_of(pid_t leader) {
  const auto ticks = process_start_ticks(leader);
  const auto uid = process_uid(leader);
  if (!ticks.ok() || !uid.ok()) return {};
  return {.leader = leader, .uid = *uid, .start_ticks = *ticks};
}

GroupMemory group_memory(const ProcessGroup& group) {
  GroupMemory sum;
  std::array<char, 8192> buffer;
  for_members(group, [&](pid_t pid, const std::string& folder) {
    ++sum.members;
    sum.pids.push_back(pid);
    const Fd file(::open((folder + "/status").c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.valid()) return;
    const std::string_view text = budget::read_whole(file.get(), buffer.data(), buffer.size());
    budget::ProcessMemory memory;
    if (!budget::parse_process_status(text, memory)) return;
    sum.peak_bytes += high_water_bytes(text);
    sum.anonymous_bytes += memory.anon + memory.swap + memory.shmem;
    sum.file_bytes += memory.file;
  });
  return sum;
}

int64_t signal_group(const ProcessGroup& group, int number) {
  int64_t members = 0;
  for_members(group, [&](pid_t pid, const std::string& folder) {
    ++members;
    if (number == 0) return;
    // Held first, looked at again: what the descriptor names cannot change any more.
    const auto process = Process::of_child(pid);
    std::array<char, 4096> buffer;
    if (process.ok() && is_member(group, folder, buffer.data(), buffer.size())) {
      (void)process->signal(number);
    }
  });
  return members;
}

}  // namespace tandem::service
