#include "service/guard_watch.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <array>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "memory_budget/guard_floors.h"
#include "service/host_view.h"
#include "service/process.h"

namespace tandem::service {
namespace {

constexpr auto kPeriod = std::chrono::milliseconds(100);
constexpr int64_t kStaleMs = 1000;
// A guard that was just started has not looked yet.
constexpr auto kFirstLook = std::chrono::seconds(3);
constexpr int kReadTries = 100;  // the writer is at it for nanoseconds
constexpr int64_t kPageOfMemory = 4096;

std::string mib(int64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

Result<std::unique_ptr<GuardWatch>> GuardWatch::open(Options options, const Clock& clock, Supervisor& supervisor,
                                                     Metrics& metrics, IncidentSink& incidents) {
  TRY_ASSIGN(budget::HostProbe probe, budget::HostProbe::open(options.root));
  TRY_ASSIGN(budget::GuardPageMapping page, budget::map_guard_page(options.guard.page, options.root));
  page->floors.write(budget::page_floors(options.floors));
  return std::unique_ptr<GuardWatch>(new GuardWatch(std::move(options), clock, supervisor, metrics,
                                                    incidents, std::move(probe), std::move(page)));
}

GuardWatch::GuardWatch(Options options, const Clock& clock, Supervisor& supervisor, Metrics& metrics,
                       IncidentSink& incidents, budget::HostProbe probe, budget::GuardPageMapping page)
    : options_(std::move(options)),
      clock_(clock),
      supervisor_(supervisor),
      metrics_(metrics),
      incidents_(incidents),
      probe_(std::move(probe)),
      page_(std::move(page)),
      keeper_(options_.guard, clock, incidents),
      worker_({supervisor.tenant(Role::default_model), supervisor.tenant(Role::optional_model)},
              options_.model_files),
      machine_(options_.floors),
      shedder_(*supervisor.tenant(Role::default_model), supervisor.tenant(Role::optional_model), *this,
               options_.default_batch_tokens, options_.optional_batch_tokens),
      opened_(clock.now()),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  CHECK(wake_.valid());
  for (size_t i = 0; i < budget::kShedStepCount; ++i) {
    const char* step = budget::shed_step_name(static_cast<budget::ShedStep>(i));
    metrics_.gauge("tandem_shed", "1 while a step of shedding is engaged", {{"step", step}}).set(0);
  }
}

GuardWatch::~GuardWatch() {
  thread_.request_stop();
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

int64_t GuardWatch::now_ms() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(clock_.now().time_since_epoch()).count();
}

void GuardWatch::start() {
  tick();
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void GuardWatch::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    pollfd poll{.fd = wake_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&poll, 1, static_cast<int>(kPeriod.count())) == 0) tick();
  }
}

void GuardWatch::stop(bool engines_outlive) {
  thread_.request_stop();
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
  if (!engines_outlive) keeper_.stop();
}

void GuardWatch::tick() {
  keeper_.step();
  const budget::GuardOutput own = sample();
  const View now = view(own);
  if (!now.from_guard) stop_like_the_guard(own);
  tell_level(now);
  clear_what_is_over(now);
  shedder_.follow(now.shed, now.level, pressure_text(now.level, now.available_bytes), now_ms());
  publish(now);
}

// Our own look, taken whether the guard looks or not: a machine that begins when the guard is gone would
// begin at green.
budget::GuardOutput GuardWatch::sample() {
  (void)probe_.read(reading_);  // else the last one
  budget::GuardInput input;
  input.sample = {.at_ms = now_ms(),
                  .available_bytes = reading_.memory.available,
                  .free_bytes = reading_.memory.free,
                  .psi_some_avg10 = reading_.psi.some.avg10,
                  .psi_full_avg10 = reading_.psi.full.avg10,
                  .allocstalls = reading_.vmstat.allocstalls,
                  .compact_fails = reading_.vmstat.compact_fails,
                  .swap_in_bytes = reading_.vmstat.swap_in_pages * kPageOfMemory,
                  .neighbour_loss_percent = static_cast<int32_t>(std::min(page_->canary_loss_percent.load(), 100u))};
  for (const budget::Role role : {budget::Role::default_model, budget::Role::optional_model}) {
    const Tenant* model = supervisor_.tenant(role);
    if (model == nullptr) continue;
    const ModelStatus status = model->status();
    input.tenants[budget::role_index(role)] = {.alive = status.pid > 0, .loading = status.state != ModelState::ready};
  }
  return machine_.update(input);
}

GuardWatch::View GuardWatch::view(const budget::GuardOutput& own) {
  budget::GuardReport report;
  bool read = false;
  for (int i = 0; i < kReadTries && !read; ++i) read = page_->report.read(report);
  const int64_t age_ms = now_ms() - report.sampled_ms;
  // A time to come is of no boot of ours.
  const bool fresh = read && report.sampled_ms > 0 && age_ms >= -kStaleMs && age_ms <= kStaleMs;
  if (fresh) hear_guard(report);
  note_stale(!fresh, age_ms);
  if (fresh) {
    return {.from_guard = true,
            .level = static_cast<budget::Level>(std::min<uint32_t>(report.level, budget::kLevelCount - 1)),
            .signals = report.signals,
            .shed = report.shed & ((budget::ShedSet{1} << budget::kShedStepCount) - 1),
            .available_bytes = report.available_bytes,
            .fall_rate_per_s = report.fall_rate_per_s};
  }
  return {.from_guard = false,
          .level = own.reading.level,
          .signals = own.reading.signals,
          .shed = own.shed,
          .available_bytes = reading_.memory.available,
          .fall_rate_per_s = own.reading.fall_rate_per_s};
}

void GuardWatch::note_stale(bool stale, int64_t age_ms) {
  const bool early = !heard_any_ && clock_.now() - opened_ < kFirstLook;
  if (options_.guard.mode == "off" || stale == stale_ || (stale && early)) return;
  stale_ = stale;
  if (!stale) {
    log::info("guard: looks again");
    return incidents_.clear(IncidentKind::guard_blind, "");
  }
  const int64_t pid = keeper_.state().pid;
  incidents_.raise(IncidentKind::guard_blind, "",
                   heard_any_ ? "the guard, process " + std::to_string(pid) + ", gave no sign for " +
                                    std::to_string(age_ms) + " ms: tandemd watches the host by itself"
                              : "the guard has not looked at the host yet: tandemd watches it by itself",
                   Json::object({{"pid", pid}, {"age_ms", heard_any_ ? age_ms : 0}}));
}

// What the guard could not do since we last heard of it; whom it stopped the restart machine reads from the
// same page, and says it.
void GuardWatch::hear_guard(const budget::GuardReport& report) {
  if (heard_any_ && report.refused > heard_.refused) {
    incidents_.raise(IncidentKind::guard_blind, "",
                     "the guard was told of a process that is not what the control page says");
  }
  if (heard_any_ && report.failed > heard_.failed) {
    incidents_.raise(IncidentKind::guard_blind, "",
                     "a signal of the guard was not let through: it must run as the engines' user");
  }
  heard_ = report;
  heard_any_ = true;
}

// Without a guard nobody else is there to do it.
void GuardWatch::stop_like_the_guard(const budget::GuardOutput& own) {
  for (size_t i = 0; i < own.action_count; ++i) {
    const budget::GuardAction& action = own.actions[i];
    const Tenant* model = supervisor_.tenant(action.role);
    if (action.kind == budget::GuardActionKind::restart_default || model == nullptr) continue;
    const int64_t pid = model->status().pid;
    const auto process = Process::open(static_cast<pid_t>(pid));
    // Asked again: a pid that the supervisor still holds is nobody else's.
    if (!process.ok() || model->status().pid != pid || !process_is_ours(process->pid())) continue;
    // First: the end must not be taken for a crash.
    supervisor_.note_guard_stop(action.role, guard_stop_text("tandemd, in the guard's place,", action.kind,
                                                             action.reason, reading_.memory.available));
    (void)process->signal(action.kind == budget::GuardActionKind::kill ? SIGKILL : SIGTERM);
  }
}

void GuardWatch::tell_level(const View& view) {
  if (view.level == level_) return;
  std::string line = std::string("memory: level ") + budget::level_name(level_) + " -> " +
                     budget::level_name(view.level) + ", " + mib(view.available_bytes) + " available, " +
                     (view.fall_rate_per_s > 0 ? "falling by " + mib(view.fall_rate_per_s) + "/s" : "not falling");
  for (const uint32_t signal : budget::kAllSignals) {
    if ((view.signals & signal) != 0) line += std::string(", ") + budget::signal_name(signal);
  }
  const bool worse = view.level > level_;
  level_ = view.level;
  worse ? log::warning(line) : log::info(line);
  if (!worse) return;
  incidents_.raise(IncidentKind::memory_low, "", line,
                   Json::object({{"level", budget::level_name(view.level)}, {"available_bytes", view.available_bytes}}));
}

void GuardWatch::clear_what_is_over(const View& view) {
  if (view.level == budget::Level::green) incidents_.clear(IncidentKind::memory_low, "");
  if (view.from_guard) incidents_.clear(IncidentKind::guard_missing, "");
  if (view.level >= budget::Level::red) return;
  for (const Tenant* model : supervisor_.tenants()) {
    if (model->status().state == ModelState::ready) {
      incidents_.clear(IncidentKind::stopped_by_guard, model->info().name);
    }
  }
}

void GuardWatch::publish(const View& view) {
  const GuardKeeper::State guard = keeper_.state();
  metrics_.gauge("tandem_guard_level", "Level of the host's memory: 0 green to 4 black")
      .set(static_cast<double>(view.level));
  metrics_.gauge("tandem_memory_available_bytes", "MemAvailable at the last look")
      .set(static_cast<double>(view.available_bytes));
  metrics_.gauge("tandem_guard_up", "1 while the guard gives a sign of life").set(view.from_guard ? 1 : 0);
  metrics_.counter("tandem_guard_restarts_total", "Starts of the guard after it died").set_total(guard.restarts);
  metrics_.counter("tandem_guard_actions_total", "Signals that the running guard has sent")
      .set_total(static_cast<int64_t>(heard_.actions));
  MutexLock lock(mutex_);
  pressure_ = {.level = view.level,
               .signals = view.signals,
               .shed = shedder_.engaged(),
               .available_bytes = view.available_bytes,
               .fall_rate_per_s = view.fall_rate_per_s,
               .from_guard = view.from_guard,
               .optional_held = shedder_.optional_held(),
               .floors = options_.floors,
               .guard_mode = guard.mode,
               .guard_pid = guard.pid,
               .guard_restarts = guard.restarts,
               .guard_problem = guard.problem};
}

Pressure GuardWatch::pressure() const {
  MutexLock lock(mutex_);
  return pressure_;
}

void GuardWatch::tell_engine(Role role, int64_t slots, int64_t chunk_tokens) {
  worker_.tell(role, slots, chunk_tokens);
}

void GuardWatch::drop_prefixes(Role role, bool drop) { worker_.drop_prefixes(role, drop); }

void GuardWatch::stop_optional() {
  log::warning("shedding: the optional model is stopped");
  const auto posted = supervisor_.post(Role::optional_model, ModelCommand::unload);
  if (!posted.ok()) log::warning("shedding: " + posted.error().message);  // asked again within a second
}

void GuardWatch::start_optional() {
  log::info("shedding: the optional model may start again");
  const auto posted = supervisor_.post(Role::optional_model, ModelCommand::load);
  if (!posted.ok()) log::error("shedding: the optional model cannot be started: " + posted.error().message);
}

void GuardWatch::advise_clean_cache() { worker_.advise_clean_cache(); }

void GuardWatch::note(budget::ShedStep step, bool engage) {
  const std::string name = budget::shed_step_name(step);
  metrics_.gauge("tandem_shed", "1 while a step of shedding is engaged", {{"step", name}}).set(engage ? 1 : 0);
  engage ? log::warning("shedding: " + name + " engaged") : log::info("shedding: " + name + " released");
}

}  // namespace tandem::service
