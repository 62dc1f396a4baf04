#include "service/engine_slot.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "base/log.h"
#include "base/utf8.h"

namespace tandem::service {
namespace {

constexpr auto kConnectPoll = std::chrono::milliseconds(20);
constexpr auto kLostGrace = std::chrono::milliseconds(500);
constexpr auto kProbeLimit = std::chrono::seconds(60);

// The last line of an engine's log says why it ended when it could not say it on the socket.
std::string last_line(const std::string& path) {
  constexpr std::streamoff kTailBytes = 2048;
  constexpr size_t kLineBytesMax = 300;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(size - kTailBytes, 0));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const size_t start = text.rfind('\n');
  return utf8::repair(text.substr(start == std::string::npos ? 0 : start + 1, kLineBytesMax));
}

// For the kernel's own killer (U15): the optional model first, then the default one, then the rest. Raising
// the score of an own process is always allowed; under a unit that starts lower it may not be.
void set_oom_score(pid_t pid, budget::Role role) {
  std::ofstream file("/proc/" + std::to_string(pid) + "/oom_score_adj");
  file << (role == budget::Role::optional_model ? 900 : 300) << std::flush;
  if (!file) log::warning("oom_score_adj of process " + std::to_string(pid) + " cannot be set");
}

}  // namespace

EngineSlot::EngineSlot(SlotOptions options, Tenant& tenant, Launcher& launcher, Prober& prober,
                       const Clock& clock)
    : options_(std::move(options)),
      config_hash_(engine_config_hash(options_)),
      tenant_(tenant),
      launcher_(launcher),
      prober_(prober),
      clock_(clock) {
  tenant_.set_status(status_);
}

void EngineSlot::log_line(const std::string& text, bool warning) const {
  const std::string line = "model " + options_.model.name + ": " + text;
  warning ? log::warning(line) : log::info(line);
}

void EngineSlot::enter(Phase phase, std::string doing, SteadyTime deadline) {
  phase_ = phase;
  doing_ = std::move(doing);
  deadline_ = deadline;
  phase_end_ = deadline;
}

void EngineSlot::report(Trouble trouble) {
  if (phase_ == Phase::leaving || phase_ == Phase::none) return;
  log_line(trouble.why, true);
  why_ = trouble.why;
  failed_ = failed_ || !trouble.replace;
  trouble_ = std::move(trouble);
  enter(Phase::leaving, "", SteadyTime::max());
}

bool EngineSlot::adopt() { return adopt_by_socket() || adopt_by_record(); }

// The kernel says who listens on the socket: that is the engine, whatever the record says.
bool EngineSlot::adopt_by_socket() {
  auto epoch = tenant_.client().attach(path(".sock"));
  if (!epoch.ok()) return false;
  const auto pid = static_cast<pid_t>(tenant_.client().peer_pid());
  auto process = Process::open(pid);
  if (!process.ok() || !process_is_ours(pid)) {
    tenant_.client().detach("the engine has ended, or is of another user");
    return false;
  }
  epoch_ = *epoch;
  process_ = std::move(*process);
  group_ = process_group_of(process_.pid());
  drained_ = false;
  auto record = read_engine_record(path(".json"));
  record_ = record.ok() ? std::move(*record) : EngineRecord{};
  status_.adopted = true;
  log_line("adopts the running engine, process " + std::to_string(process_.pid()));
  enter(Phase::greeting, "handshake with the running engine", clock_.now() + options_.engines.hello_deadline);
  return true;
}

// An engine that was started just before the last tandemd died and does not listen yet.
bool EngineSlot::adopt_by_record() {
  auto record = read_engine_record(path(".json"));
  if (!record.ok()) return false;
  const auto pid = static_cast<pid_t>(record->pid);
  auto process = Process::open(pid);
  if (!process.ok()) return false;
  const auto ticks = process_start_ticks(pid);
  if (!ticks.ok() || *ticks != static_cast<uint64_t>(record->start_ticks) || !process_is_ours(pid)) {
    return false;
  }
  process_ = std::move(*process);
  group_ = process_group_of(process_.pid());
  drained_ = false;
  record_ = std::move(*record);
  status_.adopted = true;
  log_line("adopts the starting engine, process " + std::to_string(process_.pid()));
  enter(Phase::connecting, "waits for the running engine's socket", clock_.now() + options_.engines.hello_deadline);
  deadline_ = clock_.now();
  return true;
}

void EngineSlot::launch(const budget::Profile& profile) {
  trouble_.reset();
  // An engine that a tandemd started just before its kill -9 has no record, and may have come to
  // listen only now: a second one beside it could never take the socket.
  if (adopt_by_socket()) return;
  if (std::exchange(failed_, false)) ++status_.restarts;
  status_.adopted = false;
  failure_.clear();
  drained_ = false;
  excused_ = false;
  record_ = {.config_hash = config_hash_};
  if (profile.slots > 0) record_.fallback = profile;
  group_ = {};
  enter(Phase::connecting, "starts", clock_.now() + options_.engines.hello_deadline);
  auto start = prepare_start(options_, profile, config_hash_);
  if (!start.ok()) {
    const bool hopeless = start.error().code == Errc::invalid_argument;  // it is the configuration's fault
    return report({.why = start.error().message, .permanent = hopeless});
  }
  auto process = launcher_.launch({.instance = budget::role_name(options_.role),
                                   .binary = std::move(start->binary),
                                   .arguments = std::move(start->arguments),
                                   .run_dir = options_.run_dir,
                                   .log_path = path(".log")});
  if (!process.ok()) return report({.why = process.error().message});
  process_ = std::move(*process);
  set_oom_score(process_.pid(), options_.role);
  group_ = process_group_of(process_.pid());
  save_record();
  log_line("started, process " + std::to_string(process_.pid()) + ", " + profile.name);
  deadline_ = clock_.now();
}

void EngineSlot::save_record() {
  record_.pid = process_.pid();
  const auto ticks = process_start_ticks(process_.pid());
  record_.start_ticks = ticks.ok() ? static_cast<int64_t>(*ticks) : 0;
  const auto written = write_engine_record(path(".json"), record_);
  if (!written.ok()) log_line("cannot be adopted later: " + written.error().message, true);
}

void EngineSlot::try_connect() {
  auto epoch = tenant_.client().attach(path(".sock"));
  if (epoch.ok() && tenant_.client().peer_pid() == process_.pid()) {
    epoch_ = *epoch;
    const SteadyTime end = phase_end_;
    enter(Phase::greeting, "handshake", end);
    return;
  }
  tenant_.client().detach("another process answers on the engine's socket");
  if (clock_.now() >= phase_end_) {
    return report({.why = "does not answer on its socket"});
  }
  deadline_ = std::min(clock_.now() + kConnectPoll, phase_end_);
}

Result<void> EngineSlot::check_welcome(const protocol::Welcome& welcome) const {
  const auto differs = [](const char* what, const std::string& has, const std::string& wants) {
    return make_error(Errc::invalid_argument,
                      std::string(what) + " is " + has + ", wanted " + wants);
  };
  if (welcome.version < protocol::kVersionMin || welcome.version > protocol::kVersionMax) {
    return differs("protocol version", std::to_string(welcome.version),
                   std::to_string(protocol::kVersionMin) + " to " +
                       std::to_string(protocol::kVersionMax));
  }
  if (welcome.pid != process_.pid()) {
    return differs("process", std::to_string(welcome.pid), std::to_string(process_.pid()));
  }
  if (welcome.config_hash != config_hash_) {
    return differs("configuration", welcome.config_hash, config_hash_);
  }
  if (welcome.lease_page != options_.lease_id) {
    return differs("lease page", log::quoted(welcome.lease_page), log::quoted(options_.lease_id));
  }
  if (!record_.instance_id.empty() && welcome.instance_id != record_.instance_id) {
    return differs("instance", welcome.instance_id, record_.instance_id);
  }
  if (!record_.weights_hash.empty() && welcome.weights_hash != record_.weights_hash) {
    return differs("weights", welcome.weights_hash, record_.weights_hash);
  }
  return {};
}

void EngineSlot::on_welcome(uint64_t epoch, const protocol::Welcome& welcome) {
  if (epoch != epoch_ || phase_ != Phase::greeting) return;
  const auto fits = check_welcome(welcome);
  if (!fits.ok()) {
    // A fresh engine that does not fit would not fit the next time either: that is a failure.
    return report({.why = "does not fit: " + fits.error().message, .replace = status_.adopted});
  }
  record_.instance_id = welcome.instance_id;
  record_.weights_hash = welcome.weights_hash;
  record_.config_hash = config_hash_;
  save_record();
  status_.instance_id = welcome.instance_id;
  status_.weights_hash = welcome.weights_hash;
  if (welcome.state == protocol::EngineState::ready && welcome.facts.has_value()) {
    return start_probe(*welcome.facts);
  }
  if (welcome.state == protocol::EngineState::draining) {
    return report({.why = "was draining", .replace = true});
  }
  enter(Phase::loading, "", SteadyTime::max());  // the restart machine bounds it
}

void EngineSlot::on_state(uint64_t epoch, const protocol::StateChange& change) {
  if (epoch != epoch_) return;
  if (change.state == protocol::EngineState::failed) failure_ = change.message;
  if (phase_ != Phase::loading && phase_ != Phase::probing && phase_ != Phase::ready) return;
  switch (change.state) {
    case protocol::EngineState::loading: return;
    case protocol::EngineState::ready:
      if (phase_ == Phase::loading && change.facts.has_value()) start_probe(*change.facts);
      return;
    case protocol::EngineState::draining:
      // Somebody sent it SIGTERM: not a crash, but it will end.
      return report({.why = "was told to drain from outside", .replace = true});
    case protocol::EngineState::failed:
      return report({.why = change.message});
  }
}

void EngineSlot::start_probe(const protocol::ModelFacts& facts) {
  status_.facts = facts;
  enter(Phase::probing, "asks its chat template", clock_.now() + kProbeLimit);
  prober_.probe(epoch_, facts);
}

void EngineSlot::on_probed(uint64_t epoch, Result<FoundProfile> found) {
  if (epoch != epoch_ || phase_ != Phase::probing) return;
  if (found.ok()) return become_ready(std::move(found).value());
  const Error& error = found.error();
  if (error.code == Errc::unavailable) return;  // the loss of its connection is reported by itself
  const bool refused = error.code == Errc::invalid_argument || error.code == Errc::too_large;
  report({.why = "its chat template cannot write the plainest chat: " + error.message,
          .permanent = refused});
}

void EngineSlot::become_ready(FoundProfile found) {
  log_line("profile: " + log::quoted(profile_line(found.facts)));
  tenant_.set_profile(std::move(found));
  status_.ready_unix_s = clock_.unix_seconds();
  enter(Phase::ready, "", SteadyTime::max());
  log_line("ready, process " + std::to_string(process_.pid()) +
           (status_.adopted ? ", adopted" : ""));
}

void EngineSlot::on_drained(uint64_t epoch) {
  if (epoch == epoch_) drained_ = true;
}

void EngineSlot::on_lost(uint64_t epoch, const std::string& reason) {
  if (epoch != epoch_) return;
  tenant_.client().detach(reason);
  drained_ = true;  // whatever was under way has failed
  // One of another build refuses the handshake: it is replaced in order, like one that does not fit.
  if (phase_ == Phase::greeting && status_.adopted) {
    return report({.why = "ended the handshake: " + log::quoted(reason), .replace = true});
  }
  if (phase_ != Phase::greeting && phase_ != Phase::loading && phase_ != Phase::probing &&
      phase_ != Phase::ready) {
    return;
  }
  // Nearly always the process is ending; its pidfd then says how. If it lives on, it is stopped.
  log_line(log::quoted(reason), true);
  lost_reason_ = reason;
  enter(Phase::lost, "lost its connection", clock_.now() + kLostGrace);
  epoch_ = 0;
}

void EngineSlot::stop_admitting() {
  enter(Phase::leaving, "", SteadyTime::max());
  drained_ = !tenant_.client().send(FrameType::drain, 0, Json()).ok();
}

void EngineSlot::terminate() {
  enter(Phase::leaving, "", SteadyTime::max());
  // Once: to an engine a second TERM means that it shall not finish what it does.
  if (process_.valid()) {
    launcher_.terminate(process_, budget::role_name(options_.role));
  } else {
    (void)signal_group(group_, SIGTERM);
  }
}

void EngineSlot::kill() {
  enter(Phase::leaving, "", SteadyTime::max());
  log_line("SIGKILL", true);
  if (process_.valid()) launcher_.kill(process_, budget::role_name(options_.role));
  (void)signal_group(group_, SIGKILL);
}

budget::TenantSight EngineSlot::sight() {
  const bool alive = process_.valid() || signal_group(group_, 0) > 0;
  if (!alive) group_ = {};
  return {.alive = alive, .drained = drained_, .ready = phase_ == Phase::ready};
}

void EngineSlot::collect_end() {
  how_ended_ = process_.reap();
  // Reads what the engine sent before its end: its reason may be on the way.
  tenant_.client().detach("the engine of model " + options_.model.name + " ended (" + how_ended_ +
                          ")");
}

std::string EngineSlot::on_process_end() {
  std::string end = "process " + std::to_string(process_.pid()) + " ended: " + how_ended_;
  process_ = Process();
  (void)::unlink(path(".json").c_str());
  epoch_ = 0;
  if (std::exchange(phase_, Phase::none) == Phase::leaving) {
    log_line("stopped, " + end);
    if (why_.empty()) why_ = end;
  } else {
    // Nothing that it started is of use without it.
    (void)signal_group(group_, SIGKILL);
    failed_ = !excused_;
    if (excused_) {
      end = why_ + "; " + end;
    } else if (!failure_.empty()) {
      why_ = failure_ + "; " + end;
    } else {
      const std::string line = last_line(path(".log"));
      why_ = line.empty() ? end : end + "; its log ends with: " + line;
    }
    log_line(why_, true);
  }
  enter(Phase::none, "", SteadyTime::max());
  return why_;
}

void EngineSlot::step() {
  if (clock_.now() < deadline_) return;
  switch (phase_) {
    case Phase::none:
    case Phase::leaving:
    case Phase::loading:
    case Phase::ready: return;
    case Phase::connecting: return try_connect();
    case Phase::lost: return report({.why = lost_reason_});
    case Phase::greeting:
      return report({.why = "gave no answer to the handshake", .replace = status_.adopted});
    case Phase::probing: return report({.why = "gave no answer about its chat template"});
  }
}

ModelState EngineSlot::starting_state() const {
  return phase_ == Phase::loading || phase_ == Phase::probing ? ModelState::loading
                                                              : ModelState::starting;
}

void EngineSlot::show(ModelState state, const std::string& message) {
  const bool starts = state == ModelState::starting || state == ModelState::loading;
  std::string text = message;
  if (text.empty() && starts) text = doing_;
  if (text.empty() && !starts && state != ModelState::ready) text = why_;
  if (state != ModelState::ready) status_.ready_unix_s = 0;
  status_.state = state;
  status_.message = std::move(text);
  status_.pid = pid();
  tenant_.set_status(status_);
}

ModelBudget EngineSlot::budget() const {
  ModelConfig model = options_.model;
  if (record_.fallback.has_value()) {
    model.slots = record_.fallback->slots;
    model.kv_bytes = record_.fallback->kv_bytes;
  }
  return budget_of(model);
}

// Whoever changes a running engine's budget has told it so: the fallback holds no longer.
void EngineSlot::set_budget(const ModelBudget& budget) {
  put_budget(budget, options_.model);
  if (options_.model.is_foreign()) config_hash_ = engine_config_hash(options_);
  if (!record_.fallback.has_value()) return;
  record_.fallback.reset();
  if (process_.valid()) save_record();
}

void EngineSlot::let_go() {
  tenant_.client().detach("tandemd stops");
  process_ = Process();
  group_ = {};
  enter(Phase::none, "", SteadyTime::max());
}

}  // namespace tandem::service
