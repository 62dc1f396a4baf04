#include "memory_budget/probe.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>

namespace tandem::budget {
namespace {

constexpr size_t kProcessesMax = 65536;

Fd open_read(const std::string& path) { return Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)); }

std::string_view read_path(const std::string& path, std::array<char, 16384>& buffer) {
  const Fd fd = open_read(path);
  return fd.valid() ? read_whole(fd.get(), buffer.data(), buffer.size()) : std::string_view{};
}

bool parse_pid(const char* name, int64_t& pid) {
  const std::string_view text(name);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  return error == std::errc() && end == text.data() + text.size() && pid > 0;
}

Result<std::vector<ProcessStat>> read_all_stats(const std::string& proc) {
  struct Closer {
    void operator()(DIR* dir) const { ::closedir(dir); }
  };
  const std::unique_ptr<DIR, Closer> dir(::opendir(proc.c_str()));
  if (!dir) return errno_error(Errc::io, "cannot open " + proc, errno);
  std::vector<ProcessStat> all;
  std::array<char, 16384> buffer;
  while (const dirent* entry = ::readdir(dir.get())) {
    int64_t pid = 0;
    if (!parse_pid(entry->d_name, pid)) continue;
    if (all.size() == kProcessesMax) {
      return make_error(Errc::too_large, "more than " + std::to_string(kProcessesMax) + " processes");
    }
    ProcessStat stat;
    const std::string_view text = read_path(proc + "/" + entry->d_name + "/stat", buffer);
    if (parse_process_stat(text, stat) && stat.pid == pid) all.push_back(stat);
  }
  std::sort(all.begin(), all.end(), [](const ProcessStat& a, const ProcessStat& b) { return a.pid < b.pid; });
  return all;
}

int64_t number_or(std::string_view text, int64_t otherwise) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool ok = error == std::errc() && end == text.data() + text.size() && value >= 0;
  return ok ? value : otherwise;
}

// The value of a "key value" line.
int64_t keyed(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.size() > key.size() && line.starts_with(key) && line[key.size()] == ' ') {
      return number_or(line.substr(key.size() + 1), 0);
    }
  }
  return 0;
}

}  // namespace

std::string_view read_whole(int fd, char* buffer, size_t size) noexcept {
  size_t got = 0;
  while (got < size) {
    const ssize_t n = ::pread(fd, buffer + got, size - got, static_cast<off_t>(got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return {};
    if (n == 0) return {buffer, got};
    got += static_cast<size_t>(n);
  }
  return {};
}

Result<HostProbe> HostProbe::open(const std::string& root) {
  HostProbe probe;
  const std::string proc = root + "/proc/";
  probe.meminfo_ = open_read(proc + "meminfo");
  if (!probe.meminfo_.valid()) {
    return errno_error(Errc::io, "cannot open " + proc + "meminfo", errno);
  }
  probe.psi_ = open_read(proc + "pressure/memory");
  probe.buddy_ = open_read(proc + "buddyinfo");
  probe.vmstat_ = open_read(proc + "vmstat");
  HostReading reading;
  if (!probe.read(reading)) {
    return make_error(Errc::io, "cannot read MemTotal, MemFree and MemAvailable in " + proc + "meminfo");
  }
  return probe;
}

bool HostProbe::read(HostReading& out) noexcept {
  const auto text = [this](const Fd& fd) {
    return fd.valid() ? read_whole(fd.get(), buffer_.data(), buffer_.size()) : std::string_view{};
  };
  if (!parse_meminfo(text(meminfo_), out.memory)) return false;
  out.has_psi = parse_psi(text(psi_), out.psi);
  out.has_buddy = parse_buddyinfo(text(buddy_), out.buddy);
  out.has_vmstat = parse_vmstat(text(vmstat_), out.vmstat);
  return true;
}

Result<ProcessTree> read_process_tree(const std::string& root, int64_t pid) {
  const std::string proc = root + "/proc";
  TRY_ASSIGN(const std::vector<ProcessStat> all, read_all_stats(proc));
  std::vector<bool> in(all.size());
  const auto index_of = [&all](int64_t wanted) {
    const auto at = std::lower_bound(all.begin(), all.end(), wanted,
                                     [](const ProcessStat& s, int64_t p) { return s.pid < p; });
    return at != all.end() && at->pid == wanted ? static_cast<size_t>(at - all.begin()) : all.size();
  };
  // Children may have smaller pids than their parents once pids wrap: repeat until nothing changes.
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < all.size(); ++i) {
      if (in[i]) continue;
      const size_t parent = index_of(all[i].parent);
      const bool ours = all[i].pid == pid || all[i].group == pid || all[i].session == pid ||
                        (parent < all.size() && in[parent]);
      if (ours) in[i] = changed = true;
    }
  }
  ProcessTree tree;
  std::array<char, 16384> buffer;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!in[i]) continue;
    TreeProcess process{.stat = all[i], .memory = {}};
    const std::string dir = proc + "/" + std::to_string(all[i].pid);
    if (!parse_process_status(read_path(dir + "/status", buffer), process.memory)) continue;
    parse_smaps_rollup(read_path(dir + "/smaps_rollup", buffer), process.memory);
    tree.anon_bytes += process.memory.anon;
    const auto where = all[i].pid == pid ? tree.processes.begin() : tree.processes.end();
    tree.processes.insert(where, process);
  }
  return tree;
}

Result<CgroupMemory> read_cgroup(const std::string& root, std::string_view path) {
  if (path.find("..") != std::string_view::npos) {
    return make_error(Errc::invalid_argument, "cgroup path with ..: " + std::string(path));
  }
  const std::string dir = root + "/sys/fs/cgroup/" + std::string(path) + "/";
  std::array<char, 16384> buffer;
  const int64_t current = number_or(read_path(dir + "memory.current", buffer), -1);
  if (current < 0) return make_error(Errc::not_found, "no memory.current in " + dir);
  CgroupMemory out;
  out.current = current;
  out.max = number_or(read_path(dir + "memory.max", buffer), -1);
  out.min = number_or(read_path(dir + "memory.min", buffer), 0);
  out.oom_kills = keyed(read_path(dir + "memory.events", buffer), "oom_kill");
  const std::string_view stat = read_path(dir + "memory.stat", buffer);
  out.anon = keyed(stat, "anon");
  out.file = keyed(stat, "file");
  return out;
}

Result<Fd> arm_psi_trigger(const std::string& root, const PsiTrigger& trigger) {
  const std::string path = root + "/proc/pressure/memory";
  Fd fd(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) return errno_error(Errc::io, "cannot open " + path, errno);
  const std::string text = std::string(trigger.full ? "full " : "some ") +
                           std::to_string(trigger.stall_us) + " " + std::to_string(trigger.window_us);
  // The kernel wants the terminating zero too.
  if (::write(fd.get(), text.c_str(), text.size() + 1) != static_cast<ssize_t>(text.size() + 1)) {
    return errno_error(Errc::io, "cannot arm \"" + text + "\" at " + path, errno);
  }
  return fd;
}

}  // namespace tandem::budget
