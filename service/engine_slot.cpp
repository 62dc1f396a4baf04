#include "service/engine_slot.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "base/log.h"
#include "base/utf8.h"
#include "service/sha256.h"

namespace tandem::service {
namespace {

constexpr auto kConnectPoll = std::chrono::milliseconds(20);
constexpr auto kLostGrace = std::chrono::milliseconds(500);
constexpr auto kKillLimit = std::chrono::seconds(30);
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

std::vector<std::string> model_arguments(const SlotOptions& options) {
  const ModelConfig& model = options.model;
  std::vector<std::string> out{"--model", model.file, "--name", model.name};
  const auto add = [&](const char* flag, int64_t value) {
    out.emplace_back(flag);
    out.push_back(std::to_string(value));
  };
  add("--context", model.context_tokens);
  add("--slots", model.slots);
  if (model.kv_bytes > 0) add("--kv", model.kv_bytes);
  add("--threads", model.threads);
  add("--batch-tokens", model.batch_tokens);
  // The gateway refuses first, with its Retry-After; the engine's own bound must not come before.
  add("--queue", std::min<int64_t>(model.queue_max + model.slots, 1 << 16));
  if (model.memory_limit_bytes > 0) add("--memory-limit", model.memory_limit_bytes);
  out.insert(out.end(), {"--load", model.load});
  add("--commit", model.commit ? 1 : 0);
  return out;
}

}  // namespace

std::string engine_config_hash(const SlotOptions& options) {
  std::string identity;
  SlotOptions fixed = options;
  put_budget({}, fixed.model);
  for (const std::string& argument : model_arguments(fixed)) identity += argument + '\0';
  struct stat status{};
  if (::stat(options.model.file.c_str(), &status) == 0) {
    identity += std::to_string(status.st_size) + ' ' + std::to_string(status.st_mtim.tv_sec) + '.' +
                std::to_string(status.st_mtim.tv_nsec);
  }
  return sha256_hex(identity).substr(0, 32);
}

EngineSlot::EngineSlot(SlotOptions options, Tenant& tenant, Launcher& launcher, Prober& prober,
                       const Clock& clock)
    : options_(std::move(options)),
      config_hash_(engine_config_hash(options_)),
      tenant_(tenant),
      launcher_(launcher),
      prober_(prober),
      clock_(clock),
      policy_({.restarts = options_.engines.restarts,
               .window = options_.engines.restart_window,
               .backoff = options_.engines.restart_backoff}) {
  tenant_.set_status(status_);
}

std::string EngineSlot::socket_path() const {
  return options_.run_dir + "/engine-" + options_.role + ".sock";
}
std::string EngineSlot::record_path() const {
  return options_.run_dir + "/engine-" + options_.role + ".json";
}
std::string EngineSlot::log_path() const {
  return options_.run_dir + "/engine-" + options_.role + ".log";
}

std::vector<std::string> EngineSlot::arguments() const {
  std::vector<std::string> out = model_arguments(options_);
  const auto drain_s =
      std::chrono::ceil<std::chrono::seconds>(options_.engines.stop_deadline).count();
  for (const std::string& argument :
       {std::string("--socket"), socket_path(), std::string("--config-hash"), config_hash_,
        std::string("--drain-timeout"), std::to_string(drain_s), std::string("--log-level"),
        options_.log_level}) {
    out.push_back(argument);
  }
  return out;
}

void EngineSlot::log_line(const std::string& text, bool warning) const {
  const std::string line = "model " + options_.model.name + ": " + text;
  warning ? log::warning(line) : log::info(line);
}

void EngineSlot::enter(Phase phase, ModelState state, std::string message, SteadyTime deadline) {
  phase_ = phase;
  deadline_ = deadline;
  phase_end_ = deadline;
  status_.state = state;
  status_.message = std::move(message);
  status_.pid = process_.valid() ? process_.pid() : 0;
  if (state != ModelState::ready) status_.ready_unix_s = 0;
  tenant_.set_status(status_);
}

void EngineSlot::begin(bool start_allowed) {
  if (adopt_by_socket() || adopt_by_record()) return;
  if (start_allowed) return start();
  enter(Phase::waiting, ModelState::starting, "waits for the default model", SteadyTime::max());
}

void EngineSlot::allow_start() {
  if (phase_ == Phase::waiting) start();
}

// The kernel says who listens on the socket: that is the engine, whatever the record says.
bool EngineSlot::adopt_by_socket() {
  auto epoch = tenant_.client().attach(socket_path());
  if (!epoch.ok()) return false;
  const auto pid = static_cast<pid_t>(tenant_.client().peer_pid());
  auto process = Process::open(pid);
  if (!process.ok() || !process_is_ours(pid)) {
    tenant_.client().detach("the engine has ended, or is of another user");
    return false;
  }
  epoch_ = *epoch;
  process_ = std::move(*process);
  auto record = read_engine_record(record_path());
  record_ = record.ok() ? std::move(*record) : EngineRecord{};
  status_.adopted = true;
  log_line("adopts the running engine, process " + std::to_string(process_.pid()));
  enter(Phase::greeting, ModelState::starting, "handshake with the running engine",
        clock_.now() + options_.engines.hello_deadline);
  return true;
}

// An engine that was started just before the last tandemd died and does not listen yet.
bool EngineSlot::adopt_by_record() {
  auto record = read_engine_record(record_path());
  if (!record.ok()) return false;
  const auto pid = static_cast<pid_t>(record->pid);
  auto process = Process::open(pid);
  if (!process.ok()) return false;
  const auto ticks = process_start_ticks(pid);
  if (!ticks.ok() || *ticks != static_cast<uint64_t>(record->start_ticks) || !process_is_ours(pid)) {
    return false;
  }
  process_ = std::move(*process);
  record_ = std::move(*record);
  status_.adopted = true;
  log_line("adopts the starting engine, process " + std::to_string(process_.pid()));
  enter(Phase::connecting, ModelState::starting, "waits for the running engine's socket",
        clock_.now() + options_.engines.hello_deadline);
  deadline_ = clock_.now();
  return true;
}

void EngineSlot::start() {
  // An engine that a tandemd started just before its kill -9 has no record, and may have come to
  // listen only now: a second one beside it could never take the socket.
  if (adopt_by_socket()) return;
  status_.adopted = false;
  failure_.clear();
  record_ = {.config_hash = config_hash_};
  auto process = launcher_.launch({.instance = options_.role,
                                   .binary = options_.engines.binary,
                                   .arguments = arguments(),
                                   .run_dir = options_.run_dir,
                                   .log_path = log_path()});
  if (!process.ok()) return crashed(process.error().message);
  process_ = std::move(*process);
  save_record();
  log_line("started, process " + std::to_string(process_.pid()));
  enter(Phase::connecting, ModelState::starting, "starts",
        clock_.now() + options_.engines.hello_deadline);
  deadline_ = clock_.now();
}

void EngineSlot::save_record() {
  record_.pid = process_.pid();
  const auto ticks = process_start_ticks(process_.pid());
  record_.start_ticks = ticks.ok() ? static_cast<int64_t>(*ticks) : 0;
  const auto written = write_engine_record(record_path(), record_);
  if (!written.ok()) log_line("cannot be adopted later: " + written.error().message, true);
}

void EngineSlot::try_connect() {
  auto epoch = tenant_.client().attach(socket_path());
  if (epoch.ok() && tenant_.client().peer_pid() == process_.pid()) {
    epoch_ = *epoch;
    const SteadyTime end = phase_end_;
    enter(Phase::greeting, ModelState::starting, "handshake", end);
    return;
  }
  tenant_.client().detach("another process answers on the engine's socket");
  if (clock_.now() >= phase_end_) {
    return stop_process(Then::count_crash, "does not answer on its socket");
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
    // A fresh engine that does not fit would not fit the next time either: that is a crash.
    return stop_process(status_.adopted ? Then::start : Then::count_crash,
                        "does not fit: " + fits.error().message);
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
    return stop_process(Then::start, "was draining");
  }
  enter(Phase::loading, ModelState::loading, "", clock_.now() + options_.engines.load_deadline);
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
      return stop_process(Then::start, "was told to drain from outside");
    case protocol::EngineState::failed:
      return stop_process(Then::count_crash, change.message);
  }
}

void EngineSlot::start_probe(const protocol::ModelFacts& facts) {
  status_.facts = facts;
  enter(Phase::probing, ModelState::loading, "asks its chat template", clock_.now() + kProbeLimit);
  prober_.probe(epoch_, facts);
}

void EngineSlot::on_probed(uint64_t epoch, Result<FoundProfile> found) {
  if (epoch != epoch_ || phase_ != Phase::probing) return;
  if (found.ok()) return become_ready(std::move(found).value());
  const Error& error = found.error();
  if (error.code == Errc::unavailable) return;  // the loss of its connection is reported by itself
  const bool refused = error.code == Errc::invalid_argument || error.code == Errc::too_large;
  stop_process(refused ? Then::fail : Then::count_crash,
               "its chat template cannot write the plainest chat: " + error.message);
}

void EngineSlot::become_ready(FoundProfile found) {
  log_line("profile: " + log::quoted(profile_line(found.facts)));
  tenant_.set_profile(std::move(found));
  status_.ready_unix_s = clock_.unix_seconds();
  enter(Phase::ready, ModelState::ready, "", SteadyTime::max());
  log_line("ready, process " + std::to_string(process_.pid()) +
           (status_.adopted ? ", adopted" : ""));
}

void EngineSlot::on_drained(uint64_t epoch) {
  if (epoch == epoch_ && phase_ == Phase::draining) terminate();
}

void EngineSlot::on_lost(uint64_t epoch, const std::string& reason) {
  if (epoch != epoch_) return;
  tenant_.client().detach(reason);
  if (phase_ == Phase::draining) return terminate();
  // One of another build refuses the handshake: it is replaced in order, like one that does not fit.
  if (phase_ == Phase::greeting && status_.adopted) {
    return stop_process(Then::start, "ended the handshake: " + log::quoted(reason));
  }
  if (phase_ != Phase::greeting && phase_ != Phase::loading && phase_ != Phase::probing &&
      phase_ != Phase::ready) {
    return;
  }
  // Nearly always the process is ending; its pidfd then says how. If it lives on, it is stopped.
  log_line(log::quoted(reason), true);
  lost_reason_ = reason;
  enter(Phase::lost, ModelState::starting, "lost its connection", clock_.now() + kLostGrace);
  epoch_ = 0;
}

void EngineSlot::stop_process(Then then, std::string why) {
  then_ = then;
  if (then != Then::stay_stopped) log_line(why, true);
  stop_reason_ = std::move(why);
  CHECK(process_.valid());
  enter(Phase::draining, ModelState::draining, stop_reason_,
        clock_.now() + options_.engines.stop_deadline);
  const auto sent = tenant_.client().send(FrameType::drain, 0, Json());
  if (!sent.ok()) terminate();
}

void EngineSlot::terminate() {
  launcher_.terminate(process_, options_.role);
  enter(Phase::terminating, ModelState::draining, stop_reason_,
        clock_.now() + options_.engines.stop_deadline);
}

void EngineSlot::collect_end() {
  how_ended_ = process_.reap();
  // Reads what the engine sent before its end: its reason may be on the way.
  tenant_.client().detach("the engine of model " + options_.model.name + " ended (" + how_ended_ +
                          ")");
}

void EngineSlot::on_process_end() {
  const std::string end = "process " + std::to_string(process_.pid()) + " ended: " + how_ended_;
  process_ = Process();
  (void)::unlink(record_path().c_str());
  epoch_ = 0;
  if (!stopping()) {
    if (!failure_.empty()) return crashed(failure_ + "; " + end);
    const std::string line = last_line(log_path());
    return crashed(line.empty() ? end : end + "; its log ends with: " + line);
  }
  log_line("stopped, " + end);
  switch (then_) {
    case Then::stay_stopped:
      return enter(Phase::idle, ModelState::stopped, stop_reason_, SteadyTime::max());
    case Then::start: return start();
    case Then::count_crash: return crashed(stop_reason_);
    case Then::fail: return failed(stop_reason_);
  }
}

// Until an administrator does something about it.
void EngineSlot::failed(std::string why) {
  tenant_.set_back_at(clock_.now() + std::chrono::minutes(10));
  enter(Phase::idle, ModelState::failed, std::move(why), SteadyTime::max());
}

void EngineSlot::crashed(std::string why) {
  const auto wait = policy_.on_crash(clock_.now());
  if (!wait.has_value()) {
    log::error("model " + options_.model.name + " failed: " + why + "; " +
               std::to_string(policy_.limits().restarts) +
               " restarts did not help. Look at " + log_path() +
               ", then: tandemctl model restart " + options_.model.name);
    return failed(std::move(why));
  }
  log_line(why + "; starts again in " + std::to_string(wait->count()) + " ms", true);
  tenant_.set_back_at(clock_.now() + *wait + std::chrono::seconds(2));
  enter(Phase::backoff, ModelState::backoff, std::move(why), clock_.now() + *wait);
}

void EngineSlot::step() {
  if (clock_.now() < deadline_) return;
  switch (phase_) {
    case Phase::idle:
    case Phase::waiting:
    case Phase::ready: return;
    case Phase::connecting: return try_connect();
    case Phase::lost: return stop_process(Then::count_crash, lost_reason_);
    case Phase::greeting:
      return stop_process(status_.adopted ? Then::start : Then::count_crash,
                          "gave no answer to the handshake");
    case Phase::loading: return stop_process(Then::count_crash, "did not load in time");
    case Phase::probing:
      return stop_process(Then::count_crash, "gave no answer about its chat template");
    case Phase::draining: return terminate();
    case Phase::terminating:
      log_line("does not stop: SIGKILL", true);
      launcher_.kill(process_, options_.role);
      return enter(Phase::killing, ModelState::draining, stop_reason_, clock_.now() + kKillLimit);
    case Phase::killing:
      log_line("process " + std::to_string(process_.pid()) + " does not die", true);
      deadline_ = clock_.now() + kKillLimit;
      return;
    case Phase::backoff:
      ++status_.restarts;
      return start();
  }
}

void EngineSlot::load() {
  if (stopping()) {
    then_ = Then::start;
    return;
  }
  if (process_.valid()) return;
  policy_.forget();
  start();
}

void EngineSlot::unload() {
  if (stopping()) {
    then_ = Then::stay_stopped;
    return;
  }
  if (process_.valid()) return stop_process(Then::stay_stopped, "unloaded");
  enter(Phase::idle, ModelState::stopped, "unloaded", SteadyTime::max());
}

void EngineSlot::restart() {
  policy_.forget();
  if (!process_.valid()) return load();
  if (stopping()) {
    then_ = Then::start;
    return;
  }
  stop_process(Then::start, "restarted by an administrator");
}

void EngineSlot::set_budget(const ModelBudget& budget) {
  put_budget(budget, options_.model);
}

void EngineSlot::let_go() {
  tenant_.client().detach("tandemd stops");
  process_ = Process();
  enter(Phase::idle, ModelState::stopped, "tandemd stops", SteadyTime::max());
}

}  // namespace tandem::service
