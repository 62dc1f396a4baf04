// The service manager's protocol: readiness, status, watchdog, passed sockets. Every call does nothing
// when tandemd was not started by systemd. Any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace tandem::service::systemd {

void notify_ready();
void notify_stopping();
void notify_status(const std::string& status);
void notify_watchdog();
// The start takes longer than usual: models load.
void extend_start(std::chrono::seconds by);

// How often notify_watchdog must come at most (half of WatchdogSec); nullopt: no watchdog.
std::optional<std::chrono::milliseconds> watchdog_period();

// Listening stream sockets that were passed (socket activation), close-on-exec.
std::vector<Fd> passed_sockets();

}  // namespace tandem::service::systemd
