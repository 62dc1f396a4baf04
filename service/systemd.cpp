#include "service/systemd.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>

#include <cstdint>

namespace tandem::service::systemd {

void notify_ready() { (void)sd_notify(0, "READY=1"); }
void notify_stopping() { (void)sd_notify(0, "STOPPING=1"); }
void notify_watchdog() { (void)sd_notify(0, "WATCHDOG=1"); }

void notify_status(const std::string& status) {
  std::string line = "STATUS=" + status;
  for (char& c : line) {
    if (c == '\n') c = ' ';
  }
  (void)sd_notify(0, line.c_str());
}

void extend_start(std::chrono::seconds by) {
  const std::string line = "EXTEND_TIMEOUT_USEC=" + std::to_string(by.count() * 1'000'000);
  (void)sd_notify(0, line.c_str());
}

std::optional<std::chrono::milliseconds> watchdog_period() {
  uint64_t us = 0;
  if (sd_watchdog_enabled(0, &us) <= 0 || us == 0) return std::nullopt;
  return std::chrono::milliseconds(us / 2000);
}

std::vector<Fd> passed_sockets() {
  std::vector<Fd> out;
  const int count = sd_listen_fds(1);
  for (int i = 0; i < count; ++i) {
    Fd socket(SD_LISTEN_FDS_START + i);
    (void)::fcntl(socket.get(), F_SETFD, FD_CLOEXEC);
    if (sd_is_socket(socket.get(), AF_UNSPEC, SOCK_STREAM, 1) > 0) out.push_back(std::move(socket));
  }
  return out;
}

}  // namespace tandem::service::systemd
