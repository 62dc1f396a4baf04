#include "memory_budget/guard_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/pidfd.h"
#include "memory_budget/guard_claim.h"
#include "memory_budget/guard_floors.h"

namespace tandem::budget {
namespace {

constexpr int64_t kPageOfMemory = 4096;
constexpr int64_t kFullStallUs = 100'000;
constexpr int kNice = -15;
constexpr unsigned kToGroup = 4;  // PIDFD_SIGNAL_PROCESS_GROUP, Linux 6.9

int64_t monotonic_ms() noexcept {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool ended(const Fd& pidfd) noexcept {
  pollfd item{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return ::poll(&item, 1, 0) != 0;
}

// A fault on a fresh page of the stack would be an allocation when none is left.
[[gnu::noinline]] char touch_stack() noexcept {
  std::array<char, size_t{128} << 10> stack;
  volatile char* page = stack.data();
  for (size_t i = 0; i < stack.size(); i += kPageOfMemory) page[i] = 0;
  return page[0];
}

}  // namespace

std::vector<std::string> harden_guard() {
  std::vector<std::string> refused;
  const auto note = [&refused](const char* what) {
    refused.push_back(std::string(what) + ": " + std::strerror(errno));  // NOLINT: one thread yet
  };
  (void)touch_stack();
  if (::mlockall(MCL_CURRENT | MCL_FUTURE) != 0) note("cannot lock memory");
  const sched_param parameters{.sched_priority = 1};
  if (::sched_setscheduler(0, SCHED_FIFO, &parameters) != 0) {
    note("cannot run in real time");
    if (::setpriority(PRIO_PROCESS, 0, kNice) != 0) note("cannot run with a better share either");
  }
  const Fd score(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (!score.valid() || ::write(score.get(), "-1000", 5) != 5) note("cannot leave the OOM killer's list");
  return refused;
}

GuardProcess::GuardProcess(HostProbe probe, std::unique_ptr<BlackBox> blackbox)
    : probe_(std::move(probe)), blackbox_(std::move(blackbox)) {}

GuardProcess::~GuardProcess() {
  // The magic close: a guard that ends in order does not reset the host.
  if (watchdog_.valid()) [[maybe_unused]] const ssize_t n = ::write(watchdog_.get(), "V", 1);
}

Result<std::unique_ptr<GuardProcess>> GuardProcess::start(const GuardOptions& options) {
  TRY_ASSIGN(HostProbe probe, HostProbe::open(options.root));
  TRY_ASSIGN(GuardPageMapping page, map_guard_page(options.page, options.root));
  TRY_ASSIGN(Fd claim, claim_guard_page(options.page));
  auto blackbox = BlackBox::open(options.blackbox, options.echo_fd);
  std::unique_ptr<GuardProcess> guard(new GuardProcess(std::move(probe), std::move(blackbox)));
  guard->page_ = std::move(page);
  guard->claim_ = std::move(claim);
  guard->root_ = options.root;
  if (!guard->probe_.read(guard->reading_)) return make_error(Errc::io, "meminfo cannot be read");
  guard->machine_ = std::make_unique<GuardMachine>(floors_for(guard->reading_.memory.total));
  guard->kmsg_ = Fd(::open((options.root + "/dev/kmsg").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (guard->kmsg_.valid()) ::lseek(guard->kmsg_.get(), 0, SEEK_END);
  if (auto trigger = arm_psi_trigger(options.root, {.full = true, .stall_us = kFullStallUs})) {
    guard->psi_full_ = std::move(trigger).value();
  }
  if (!options.watchdog.empty()) {
    guard->watchdog_ = Fd(::open(options.watchdog.c_str(), O_WRONLY | O_CLOEXEC));
    if (!guard->watchdog_.valid()) {
      return errno_error(Errc::io, "cannot open the watchdog " + options.watchdog, errno);
    }
  }
  return guard;
}

// Pinned first and checked then: what the descriptor names cannot change any more.
bool GuardProcess::is_what_it_says(const GuardTenant& tenant) noexcept {
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", tenant.pid);
  const Fd file(::open(path.data(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0) return false;
  ProcessStat stat;
  if (!parse_process_stat(read_whole(file.get(), buffer_.data(), buffer_.size()), stat)) return false;
  // Its own group, or a signal to the group would reach others.
  return stat.start_ticks == tenant.start_ticks && info.st_uid == tenant.uid &&
         stat.group == tenant.pid && tenant.pid > 1;
}

void GuardProcess::pin(Role role, const GuardTenant& tenant) noexcept {
  Pinned& pinned = pinned_[role_index(role)];
  pinned.tenant = tenant;
  pinned.pidfd.reset();
  pinned.alive = pinned.refused = pinned.orphaned = false;
  if (tenant.pid == 0) return;
  Fd pidfd = open_pidfd(tenant.pid);
  if (!pidfd.valid()) return;  // ended already
  if (!is_what_it_says(tenant)) {
    pinned.refused = true;
    ++report_.refused;
    return;
  }
  pinned.pidfd = std::move(pidfd);
  pinned.alive = true;
}

void GuardProcess::follow_page() noexcept {
  for (const Role role : {Role::default_model, Role::optional_model}) {
    Pinned& pinned = pinned_[role_index(role)];
    GuardTenant tenant;
    if (page_->tenant(role).read(tenant)) {
      const bool same = tenant.pid == pinned.tenant.pid && tenant.start_ticks == pinned.tenant.start_ticks &&
                        tenant.uid == pinned.tenant.uid;
      if (!same) pin(role, tenant);
      pinned.tenant.loading = tenant.loading;
    }
    if (pinned.alive && !pinned.orphaned && ended(pinned.pidfd)) {
      pinned.orphaned = true;
      pinned.pidfd.reset();
    }
    if (pinned.alive && pinned.orphaned) pinned.alive = for_group(pinned.tenant, 0) > 0;
  }
}

// Floors out of order are not followed: the last good ones stay.
void GuardProcess::follow_floors() noexcept {
  GuardFloors told;
  if (!page_->floors.read(told) || std::memcmp(&told, &told_floors_, sizeof told) == 0) return;
  told_floors_ = told;
  const LevelFloors floors = floors_of_page(told, reading_.memory.total);
  const bool good = floors_in_order(floors);
  if (good) machine_->set_floors(floors);
  std::array<char, 256> text;
  const int n = std::snprintf(
      text.data(), text.size(), "floors=%s yellow_mib=%lld orange_mib=%lld red_mib=%lld black_mib=%lld calm_ms=%lld",
      good ? "followed" : "refused", static_cast<long long>(floors.yellow_enter / kMiB),
      static_cast<long long>(floors.orange_enter / kMiB), static_cast<long long>(floors.red_enter / kMiB),
      static_cast<long long>(floors.black_enter / kMiB), static_cast<long long>(floors.calm_ms));
  if (n > 0) blackbox_->note({text.data(), std::min(static_cast<size_t>(n), text.size() - 1)}, true);
}

// A group's number is not given again while a member lives; its members started after the leader and
// run as the same user. Each is pinned before it is looked at.
bool GuardProcess::signal_member(const GuardTenant& leader, pid_t pid, int signal_number) noexcept {
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", static_cast<int>(pid));
  const Fd pidfd = signal_number == 0 ? Fd() : open_pidfd(pid);
  const Fd file(::open(path.data(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0) return false;
  ProcessStat stat;
  if (!parse_process_stat(read_whole(file.get(), buffer_.data(), buffer_.size()), stat)) return false;
  const bool member = stat.group == leader.pid && stat.start_ticks >= leader.start_ticks &&
                      info.st_uid == leader.uid && stat.state != 'Z' && stat.state != 'X';
  if (member && pidfd.valid()) {
    ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal_number, nullptr, 0);
  }
  return member;
}

int GuardProcess::for_group(const GuardTenant& leader, int signal_number) noexcept {
  // readdir() allocates: the call below it does not.
  struct Entry {
    uint64_t inode;
    int64_t offset;
    uint16_t bytes;
    uint8_t type;
  };
  constexpr size_t kNameAt = 19;
  const Fd proc(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  int members = 0;
  while (proc.valid()) {
    const long got = ::syscall(SYS_getdents64, proc.get(), entries_.data(), entries_.size());
    if (got <= 0) break;
    for (size_t at = 0; at < static_cast<size_t>(got);) {
      Entry entry;
      std::memcpy(&entry, entries_.data() + at, kNameAt);
      const char* name = entries_.data() + at + kNameAt;
      at += entry.bytes;
      pid_t pid = 0;
      const auto [end, error] = std::from_chars(name, name + 10, pid);
      if (error == std::errc() && *end == '\0' && pid > 1 && signal_member(leader, pid, signal_number)) {
        ++members;
      }
    }
  }
  return members;
}

void GuardProcess::count_driver_lines() noexcept {
  if (!kmsg_.valid()) return;
  for (int lines = 0; lines < 256; ++lines) {  // the rest in the next look
    const ssize_t n = ::read(kmsg_.get(), buffer_.data(), buffer_.size());
    if (n < 0 && errno == EPIPE) continue;  // overwritten meanwhile: go on with the oldest there is
    if (n <= 0) return;
    if (is_driver_no_memory_line({buffer_.data(), static_cast<size_t>(n)})) ++driver_lines_;
  }
}

// Never by number alone, which the kernel may have given to somebody else meanwhile: the group by its
// leader's descriptor, on kernels without that the leader, and then each member that was looked at.
void GuardProcess::signal_pinned(const Pinned& pinned, int signal_number) noexcept {
  const auto send = [&](unsigned flags) {
    return ::syscall(SYS_pidfd_send_signal, pinned.pidfd.get(), signal_number, nullptr, flags) == 0;
  };
  if (pinned.orphaned) {
    for_group(pinned.tenant, signal_number);
    return;
  }
  if (send(kToGroup)) {
    if (signal_number == SIGKILL) reaper_.release(pinned.pidfd.get());
    return;
  }
  if (errno == EINVAL) {
    const bool leader = send(0);
    const int error = errno;
    if (leader && signal_number == SIGKILL) reaper_.release(pinned.pidfd.get());
    for_group(pinned.tenant, signal_number);
    if (leader || error == ESRCH) return;
  } else if (errno == ESRCH) {
    return;
  }
  ++report_.failed;
}

void GuardProcess::act(const GuardAction& action) noexcept {
  Pinned& pinned = pinned_[role_index(action.role)];
  if (action.kind != GuardActionKind::restart_default && pinned.alive) {
    signal_pinned(pinned, action.kind == GuardActionKind::kill ? SIGKILL : SIGTERM);
  }
  ++report_.actions;
  report_.acted_ms = monotonic_ms();
  report_.action = static_cast<uint32_t>(action.kind);
  report_.reason = static_cast<uint32_t>(action.reason);
  report_.role = static_cast<uint32_t>(action.role);
  std::array<char, 256> text;
  const int n = std::snprintf(
      text.data(), text.size(), "mono_ms=%lld action=%s role=%s reason=%s pid=%d grace_ms=%lld available_mib=%lld",
      static_cast<long long>(report_.acted_ms), guard_action_name(action.kind), role_name(action.role),
      guard_reason_name(action.reason), pinned.tenant.pid, static_cast<long long>(action.grace_ms),
      static_cast<long long>(reading_.memory.available / kMiB));
  if (n > 0) blackbox_->note({text.data(), std::min(static_cast<size_t>(n), text.size() - 1)}, true);
}

void GuardProcess::tell(const GuardOutput& out) noexcept {
  report_.level = static_cast<uint32_t>(out.reading.level);
  report_.signals = out.reading.signals;
  report_.shed = out.shed;
  report_.pinned = (pinned_[0].alive ? 1u : 0u) | (pinned_[1].alive ? 2u : 0u);
  report_.sampled_ms = read_ms_;
  report_.available_bytes = reading_.memory.available;
  report_.fall_rate_per_s = out.reading.fall_rate_per_s;
  page_->report.write(report_);
}

void GuardProcess::note_second(const GuardOutput& out) noexcept {
  const int64_t now_ms = monotonic_ms();
  const bool changed = out.before != out.reading.level;
  if (!changed && noted_ms_ >= 0 && now_ms - noted_ms_ < 1000) return;
  if (noted_ms_ < 0 || now_ms - noted_ms_ >= 1000) noted_ms_ = now_ms;
  if (watchdog_.valid()) [[maybe_unused]] const ssize_t n = ::write(watchdog_.get(), "\0", 1);
  const Meminfo& m = reading_.memory;
  std::array<char, BlackBox::kLineBytes> text;
  const int n = std::snprintf(
      text.data(), text.size(),
      "mono_ms=%lld level=%s signals=%u available_mib=%lld free_mib=%lld cached_mib=%lld anon_mib=%lld "
      "driver_mib=%lld swap_free_mib=%lld psi_some=%d psi_full=%d blocks9=%lld allocstall=%lld "
      "compact_fail=%lld pswpin=%lld majfault=%lld oom_kill=%lld nvrm=%lld pids=%d,%d refused=%u failed=%u "
      "blind_ms=%lld",
      static_cast<long long>(now_ms), level_name(out.reading.level), out.reading.signals,
      static_cast<long long>(m.available / kMiB), static_cast<long long>(m.free / kMiB),
      static_cast<long long>(m.cached / kMiB), static_cast<long long>(m.anon / kMiB),
      static_cast<long long>(driver_residual(m) / kMiB), static_cast<long long>(m.swap_free / kMiB),
      reading_.psi.some.avg10, reading_.psi.full.avg10,
      static_cast<long long>(blocks_at_least(reading_.buddy, 9)),
      static_cast<long long>(reading_.vmstat.allocstalls),
      static_cast<long long>(reading_.vmstat.compact_fails),
      static_cast<long long>(reading_.vmstat.swap_in_pages),
      static_cast<long long>(reading_.vmstat.major_faults),
      static_cast<long long>(reading_.vmstat.oom_kills), static_cast<long long>(driver_lines_),
      pinned_[0].alive ? pinned_[0].tenant.pid : 0, pinned_[1].alive ? pinned_[1].tenant.pid : 0,
      report_.refused, report_.failed, static_cast<long long>(now_ms - read_ms_));
  if (n > 0) blackbox_->note({text.data(), std::min(static_cast<size_t>(n), text.size() - 1)}, changed);
}

int64_t GuardProcess::tick() noexcept {
  follow_page();
  count_driver_lines();
  // A host that cannot even show its memory keeps the last reading: better old than none. But it is not
  // told as a new one: tandemd then sees a guard that does not see.
  if (probe_.read(reading_)) read_ms_ = monotonic_ms();
  follow_floors();
  GuardInput input;
  input.sample = {.at_ms = monotonic_ms(),
                  .available_bytes = reading_.memory.available,
                  .free_bytes = reading_.memory.free,
                  .psi_some_avg10 = reading_.psi.some.avg10,
                  .psi_full_avg10 = reading_.psi.full.avg10,
                  .psi_full_trigger = std::exchange(psi_full_fired_, false),
                  .driver_no_memory_lines = driver_lines_,
                  .allocstalls = reading_.vmstat.allocstalls,
                  .compact_fails = reading_.vmstat.compact_fails,
                  .swap_in_bytes = reading_.vmstat.swap_in_pages * kPageOfMemory,
                  .neighbour_loss_percent =
                      static_cast<int32_t>(std::min(page_->canary_loss_percent.load(), 100u))};
  for (size_t i = 0; i < kRoleCount; ++i) {
    input.tenants[i] = {.alive = pinned_[i].alive, .loading = pinned_[i].tenant.loading != 0};
  }
  const GuardOutput out = machine_->update(input);
  for (size_t i = 0; i < out.action_count; ++i) act(out.actions[i]);
  tell(out);
  note_second(out);
  return out.next_sample_ms;
}

bool GuardProcess::wait(int64_t ms, int stop_fd) noexcept {
  std::array<pollfd, 4> items{};
  size_t count = 0;
  items[count++] = {.fd = stop_fd, .events = POLLIN, .revents = 0};
  for (const Pinned& pinned : pinned_) {
    if (pinned.pidfd.valid()) items[count++] = {.fd = pinned.pidfd.get(), .events = POLLIN, .revents = 0};
  }
  const size_t trigger = count;
  if (psi_full_.valid()) items[count++] = {.fd = psi_full_.get(), .events = POLLPRI, .revents = 0};
  if (::poll(items.data(), static_cast<nfds_t>(count), static_cast<int>(ms)) <= 0) return true;
  if (trigger < count && (items[trigger].revents & POLLPRI) != 0) psi_full_fired_ = true;
  if (trigger < count && (items[trigger].revents & (POLLERR | POLLNVAL)) != 0) psi_full_.reset();
  return (items[0].revents & POLLIN) == 0;
}

}  // namespace tandem::budget
