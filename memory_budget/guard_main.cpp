// tandem-guard --page FILE --blackbox FILE [--root DIR] [--watchdog DEVICE]
//
// Watches the host's memory and, when it runs out, stops the optional model before the host wedges.
// Ends on SIGTERM or SIGINT. Exit status: 0 ended in order, 2 cannot start, 3 the page has its guard.
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "memory_budget/guard_process.h"

namespace {

using tandem::budget::GuardOptions;
using tandem::budget::GuardProcess;

bool parse_arguments(int argc, char** argv, GuardOptions& options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view key = argv[i];
    std::string* target = key == "--root"       ? &options.root
                          : key == "--page"     ? &options.page
                          : key == "--blackbox" ? &options.blackbox
                          : key == "--watchdog" ? &options.watchdog
                                                : nullptr;
    if (target == nullptr) return false;
    *target = argv[i + 1];
  }
  return argc % 2 == 1 && !options.page.empty() && !options.blackbox.empty();
}

// Locked memory counts as used: the threads need no stack of 8 MiB.
void small_stacks() {
  pthread_attr_t attributes;
  if (::pthread_attr_init(&attributes) != 0) return;
  if (::pthread_attr_setstacksize(&attributes, size_t{256} << 10) == 0) {
    (void)::pthread_setattr_default_np(&attributes);
  }
  ::pthread_attr_destroy(&attributes);
}

}  // namespace

int main(int argc, char** argv) {
  GuardOptions options;
  if (!parse_arguments(argc, argv, options)) {
    std::fprintf(stderr, "usage: tandem-guard --page FILE --blackbox FILE [--root DIR] [--watchdog DEVICE]\n");
    return 2;
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);  // before the black box starts its thread
  // A log or a terminal that goes away is no reason to leave a host alone.
  (void)::signal(SIGPIPE, SIG_IGN);
  (void)::signal(SIGHUP, SIG_IGN);
  const tandem::Fd stop(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));

  small_stacks();
  auto guard = GuardProcess::start(options);
  if (!guard.ok() || !stop.valid()) {
    std::fprintf(stderr, "tandem-guard: %s\n", guard.ok() ? "no signalfd" : guard.error().message.c_str());
    return !guard.ok() && guard.error().code == tandem::Errc::exhausted ? 3 : 2;
  }
  for (const std::string& refused : tandem::budget::harden_guard()) {
    std::fprintf(stderr, "tandem-guard: %s\n", refused.c_str());
  }
  GuardProcess& running = **guard;
  int64_t next_ms = running.tick();
  while (running.wait(next_ms, stop.get())) next_ms = running.tick();
  return 0;
}
