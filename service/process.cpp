#include "service/process.h"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/pidfd.h"

namespace tandem::service {
namespace {

// By number: the wrappers came to glibc at different times (2.36 has them, older ones do not).
int signal_pidfd(int pidfd, int number) {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, pidfd, number, nullptr, 0));
}

}  // namespace

Result<Process> Process::of_child(pid_t pid) {
  if (pid <= 0) return make_error(Errc::not_found, "no process");
  Fd pidfd = open_pidfd(pid);
  if (!pidfd.valid()) {
    return errno_error(errno == ESRCH ? Errc::not_found : Errc::io,
                       "pidfd of process " + std::to_string(pid), errno);
  }
  return Process(pid, std::move(pidfd));
}

Result<Process> Process::open(pid_t pid) {
  TRY_ASSIGN(Process process, of_child(pid));
  if (process.exited()) {
    return make_error(Errc::not_found, "process " + std::to_string(pid) + " has ended");
  }
  return process;
}

bool Process::exited() const { return wait(std::chrono::milliseconds(0)); }

bool Process::wait(std::chrono::milliseconds limit) const {
  pollfd poll{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&poll, 1, static_cast<int>(limit.count())) == 1;
}

bool Process::signal(int number) const { return signal_pidfd(pidfd_.get(), number) == 0; }

std::string Process::reap() {
  siginfo_t info{};
  if (::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd_.get()), &info,
               WEXITED | WNOHANG) != 0 ||
      info.si_pid == 0) {
    return "ended";
  }
  if (info.si_code == CLD_EXITED) return "exit code " + std::to_string(info.si_status);
  return "killed by signal " + std::to_string(info.si_status);
}

Result<uint64_t> process_start_ticks(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // The command in parentheses may hold anything; fields are counted from the last ')'.
  const size_t close = text.rfind(')');
  if (close == std::string::npos) {
    return make_error(Errc::not_found, "no process " + std::to_string(pid));
  }
  constexpr int kFieldsToStartTime = 20;  // start time is field 22, the one after ')' is field 3
  size_t at = close;
  for (int i = 0; i < kFieldsToStartTime && at != std::string::npos; ++i) {
    at = text.find(' ', at + 1);
  }
  uint64_t ticks = 0;
  if (at == std::string::npos ||
      std::from_chars(text.data() + at + 1, text.data() + text.size(), ticks).ec != std::errc()) {
    return make_error(Errc::io, "cannot read the start time of process " + std::to_string(pid));
  }
  return ticks;
}

Result<uid_t> process_uid(pid_t pid) {
  struct stat status{};
  const std::string path = "/proc/" + std::to_string(pid);
  if (::stat(path.c_str(), &status) != 0) {
    return errno_error(Errc::not_found, "process " + std::to_string(pid), errno);
  }
  return status.st_uid;
}

bool process_is_ours(pid_t pid) {
  const auto uid = process_uid(pid);
  return uid.ok() && (*uid == ::geteuid() || ::geteuid() == 0);
}

}  // namespace tandem::service
