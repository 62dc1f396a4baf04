#include "service/guard_keeper.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"
#include "memory_budget/guard_claim.h"
#include "service/atomic_file.h"
#include "service/spawn.h"

namespace tandem::service {
namespace {

constexpr auto kStopLimit = std::chrono::seconds(3);
constexpr auto kKillLimit = std::chrono::seconds(5);
constexpr auto kWaitMin = std::chrono::seconds(1);
constexpr auto kWaitMax = std::chrono::seconds(30);
// One that ran for so long did not die of its start: the next one may come at once.
constexpr auto kRanWell = std::chrono::seconds(10);
constexpr auto kUnitLook = std::chrono::seconds(1);
constexpr const char* kOtherRuns = "exit code 3";  // docs/formats/guard.md
constexpr size_t kCommandBytesMax = 64 << 10;

}  // namespace

GuardKeeper::GuardKeeper(GuardKeeperOptions options, const Clock& clock, IncidentSink& incidents)
    : options_(std::move(options)), clock_(clock), incidents_(incidents) {
  now_.mode = options_.mode;
  publish();
}

std::vector<std::string> GuardKeeper::command() const {
  std::vector<std::string> out{options_.binary, "--page", options_.page, "--blackbox", options_.blackbox};
  if (!options_.watchdog.empty()) {
    out.emplace_back("--watchdog");
    out.push_back(options_.watchdog);
  }
  return out;
}

bool GuardKeeper::is_as_wanted(pid_t pid) const {
  const std::string proc = "/proc/" + std::to_string(pid);
  std::string wanted;
  for (const std::string& argument : command()) wanted += argument + '\0';
  const auto has = read_small_file(proc + "/cmdline", kCommandBytesMax);
  if (!has.ok() || *has != wanted) return false;
  // The program's file was replaced meanwhile: an upgrade.
  std::array<char, 4096> link{};
  const ssize_t n = ::readlink((proc + "/exe").c_str(), link.data(), link.size());
  return n > 0 && !std::string_view(link.data(), static_cast<size_t>(n)).ends_with(" (deleted)");
}

bool GuardKeeper::adopt() {
  const pid_t pid = budget::guard_of_page(options_.page);
  if (pid <= 0) return false;
  auto process = Process::open(pid);
  // Asked again: what the descriptor names is what holds the page.
  if (!process.ok() || budget::guard_of_page(options_.page) != pid) return false;
  process_ = std::move(*process);
  now_.pid = pid;
  now_.adopted = true;
  now_.problem.clear();
  started_ = clock_.now();
  replacing_ = !is_as_wanted(pid);
  if (replacing_) {
    log::warning("guard: process " + std::to_string(pid) + " is of another build, or was told other things: replaced");
    (void)process_.signal(SIGTERM);
  } else {
    log::info("guard: adopts process " + std::to_string(pid));
  }
  return true;
}

void GuardKeeper::start() {
  const auto pid = spawn(command(), {.output = options_.log, .own_session = true});
  if (!pid.ok()) return try_later(pid.error().message);
  auto process = Process::of_child(*pid);
  if (!process.ok()) return try_later(process.error().message);
  process_ = std::move(*process);
  replacing_ = false;
  started_ = clock_.now();
  now_.pid = *pid;
  now_.adopted = false;
  now_.problem.clear();
  log::info("guard: started, process " + std::to_string(*pid));
}

void GuardKeeper::try_later(std::string problem) {
  wait_ = std::clamp<std::chrono::milliseconds>(wait_ * 2, kWaitMin, kWaitMax);
  next_try_ = clock_.now() + wait_;
  // Once: what fails again and again is one incident.
  if (now_.problem.empty()) incidents_.raise(IncidentKind::guard_missing, "", "no guard watches the host: " + problem);
  now_.problem = std::move(problem);
}

void GuardKeeper::on_end() {
  const std::string end = process_.reap();
  const std::string who = "process " + std::to_string(process_.pid());
  process_ = Process();
  now_.pid = 0;
  if (std::exchange(replacing_, false)) return;
  if (end == kOtherRuns) return;  // one of before, slow to start, has the page: it is adopted
  if (clock_.now() - started_ > kRanWell) wait_ = std::chrono::milliseconds(0);
  ++now_.restarts;
  incidents_.raise(IncidentKind::guard_missing, "", "the guard, " + who + ", ended by itself: " + end + "; its log is " + options_.log);
  if (wait_.count() > 0) {
    next_try_ = clock_.now() + wait_;
    now_.problem = "ended: " + end;
  }
  wait_ = std::clamp<std::chrono::milliseconds>(wait_ * 2, kWaitMin, kWaitMax);
}

void GuardKeeper::look_at_unit() {
  if (clock_.now() < next_try_) return;
  next_try_ = clock_.now() + kUnitLook;
  const int64_t pid = budget::guard_of_page(options_.page);
  const bool lost = pid == 0 && now_.problem.empty();
  now_.pid = pid;
  now_.problem = pid == 0 ? "tandem-guard.service does not run" : "";
  if (lost) incidents_.raise(IncidentKind::guard_missing, "", "no guard watches the host: " + now_.problem);
}

void GuardKeeper::step() {
  if (options_.mode == "off") return;
  if (options_.mode == "unit") {
    look_at_unit();
  } else {
    if (process_.valid() && process_.exited()) on_end();
    if (process_.valid() && replacing_ && clock_.now() - started_ > kStopLimit) (void)process_.signal(SIGKILL);
    if (!process_.valid() && clock_.now() >= next_try_ && !adopt()) start();
  }
  publish();
}

void GuardKeeper::stop() {
  if (options_.mode != "child") return;
  // A guard that was just started has not claimed its page yet; one of before may still hold it.
  if (!process_.valid() && !adopt()) return;
  (void)process_.signal(SIGTERM);
  if (!process_.wait(kStopLimit)) {
    log::warning("guard: process " + std::to_string(process_.pid()) + " does not stop: SIGKILL");
    (void)process_.signal(SIGKILL);
    if (!process_.wait(kKillLimit)) return;
  }
  log::info("guard: stopped, process " + std::to_string(process_.pid()) + ": " + process_.reap());
  process_ = Process();
  now_.pid = 0;
  publish();
}

void GuardKeeper::publish() {
  MutexLock lock(mutex_);
  published_ = now_;
}

GuardKeeper::State GuardKeeper::state() const {
  MutexLock lock(mutex_);
  return published_;
}

}  // namespace tandem::service
