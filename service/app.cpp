#include "service/app.h"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/check.h"
#include "base/lease/page.h"
#include "base/log.h"
#include "memory_budget/guard_page_file.h"
#include "memory_budget/probe.h"
#include "service/admin_commands.h"
#include "service/admin_server.h"
#include "service/atomic_file.h"
#include "service/budget_target.h"
#include "service/canary.h"
#include "service/control_page.h"
#include "service/driver_memory.h"
#include "service/engine_binary.h"
#include "service/guard_watch.h"
#include "service/host_view.h"
#include "service/http/server.h"
#include "service/incident_keeper.h"
#include "service/incident_watch.h"
#include "service/key_ring.h"
#include "service/launcher.h"
#include "service/learned_memory.h"
#include "service/memory_floors.h"
#include "service/metrics.h"
#include "service/model_metrics.h"
#include "service/pacing_keeper.h"
#include "service/reclaimer.h"
#include "service/record_keeper.h"
#include "service/store/store.h"
#include "service/supervisor.h"
#include "service/systemd.h"
#include "service/version.h"

namespace tandem::service {
namespace {

constexpr int kHeapsMax = 4;
constexpr auto kIdlePoll = std::chrono::seconds(10);
constexpr auto kDrainPoll = std::chrono::milliseconds(20);

// Without it there is no way to an engine: said here, in words, and not by whoever meets it first.
Result<void> prepare_run_dir(const std::string& path) {
  Result<void> made = make_directory(path, 0750);
  if (made.ok() && ::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    made = errno_error(Errc::io, "cannot write to " + path, errno);
  }
  if (made.ok()) return {};
  return make_error(Errc::io, "server.run_dir: " + made.error().message +
                                  ": the sockets of the engines and the guard's page live there: choose a directory in memory "
                                  "that tandemd may write to, such as /run/tandem");
}


// Blocks the signals and hands them out as reads; with the wake-up for a shutdown command.
class StopSignal {
 public:
  StopSignal() {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, number);
    CHECK(::pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
    (void)::signal(SIGPIPE, SIG_IGN);
    signals_ = Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    wake_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    CHECK(signals_.valid() && wake_.valid());
  }
  void request() const {
    const uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
  }
  // Waits at most `limit`; true: a stop was asked for in this time.
  [[nodiscard]] bool wait(std::chrono::milliseconds limit) const {
    pollfd polls[2] = {{signals_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (::poll(polls, 2, static_cast<int>(limit.count())) <= 0) return false;
    uint64_t count = 0;
    bool asked = ::read(wake_.get(), &count, sizeof count) > 0;
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) > 0) {
      // A terminal that goes away is no reason to stop a service, and nothing is read again.
      if (info.ssi_signo == SIGHUP) {
        log::info("SIGHUP: ignored; a changed configuration needs a restart");
      } else {
        asked = true;
      }
    }
    return asked;
  }

 private:
  Fd signals_;
  Fd wake_;
};

Result<Fd> take_lock(const std::string& key, const std::string& directory) {
  const std::string path = directory + "/tandemd.lock";
  Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  // A disk that cannot be written is no reason not to serve: what is there is locked as it is.
  const int problem = lock.valid() ? 0 : errno;
  if (!lock.valid()) lock = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!lock.valid()) lock = Fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock.valid()) return errno_error(Errc::io, "open " + path, problem);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  return make_error(Errc::io, "another tandemd runs with " + key + " " + directory + " (its lock " +
                                  path + " is taken)");
}

// From an ordered stop to ready again, at most.
std::chrono::milliseconds restart_limit(const EnginesConfig& engines) {
  return 3 * engines.stop_deadline + engines.hello_deadline + engines.load_deadline + std::chrono::minutes(10);
}

class App {
 public:
  App(const Config& config, const StopSignal& stop_signal)
      : config_(config), stop_signal_(stop_signal) {}

  Result<void> start();
  void serve() const;
  void stop();

 private:
  Result<void> prepare_directories();
  Result<void> open_store();
  Result<void> resolve_budgets();
  Result<void> build_models();
  Result<void> open_watch();
  void make_canary();
  Result<void> open_lease();
  Result<void> open_host();
  Result<void> start_http();
  Result<void> start_admin();
  void on_models_changed();

  const Config& config_;
  const StopSignal& stop_signal_;
  SystemClock clock_;
  Metrics metrics_;
  Fd run_lock_;
  Fd state_lock_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<IncidentKeeper> incidents_;
  std::unique_ptr<KeyRing> keys_;
  std::unique_ptr<Launcher> launcher_;
  std::unique_ptr<ControlPage> page_;
  LeasePageMapping lease_;  // none when the lease is off
  std::unique_ptr<StoreBook> book_;
  BudgetKeeper::Start budgets_at_start_;
  budget::LevelFloors floors_;  // of this host, as configured
  std::unique_ptr<DriverMemory> driver_memory_;
  std::unique_ptr<HostView> host_;
  std::unique_ptr<Reclaimer> reclaimer_;
  std::unique_ptr<LearnedBook> learned_;
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<SupervisorBudgets> budget_target_;
  std::unique_ptr<BudgetKeeper> budgets_;
  std::unique_ptr<GuardWatch> watch_;
  std::unique_ptr<Canary> canary_;
  std::unique_ptr<PacingKeeper> pacing_;  // none where the lease keeps order
  std::unique_ptr<IncidentWatch> incident_watch_;
  std::unique_ptr<RecordKeeper> records_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<AdminCommands> commands_;
  std::unique_ptr<AdminServer> admin_;
  std::string address_;
  bool told_ready_ = false;  // supervisor's thread
};

Result<void> App::start() {
  TRY(prepare_directories());
  TRY(open_store());
  TRY(resolve_budgets());
  TRY(build_models());
  TRY(open_watch());
  make_canary();
  TRY(start_http());
  TRY(start_admin());
  watch_->start();  // a host in trouble is known before an engine starts
  supervisor_->start();
  budgets_->start();
  incident_watch_->start();
  canary_->start();
  if (pacing_) pacing_->start();
  log::info("tandemd " + std::string(kVersion) + " listens on " + address_);
  return {};
}

Result<void> App::prepare_directories() {
  TRY(make_directory(config_.server.state_dir, 0700));
  TRY(prepare_run_dir(config_.server.run_dir));
  // Two of them would fight over the engines, and write to one database (which some versions of SQLite
  // do not survive).
  TRY_ASSIGN(run_lock_, take_lock("run_dir", config_.server.run_dir));
  if (config_.server.state_dir == config_.server.run_dir) return {};
  TRY_ASSIGN(state_lock_, take_lock("state_dir", config_.server.state_dir));
  return {};
}

Result<void> App::open_store() {
  const LimitsConfig& limits = config_.limits;
  TRY_ASSIGN(store_,
             Store::open({.path = config_.server.state_dir + "/tandem.db",
                          .copy_path = config_.server.run_dir + "/store-copy.db",
                          .record_rows = limits.record_rows,
                          .responses = {.bytes_max = limits.stored_bytes,
                                        .bytes_per_key_max = limits.stored_bytes_per_key,
                                        .lifetime_s = limits.stored_time.count() / 1000}}));
  IncidentKeeper::Options options{.models = {config_.default_model.name}};
  if (config_.optional_model.has_value()) options.models.push_back(config_.optional_model->name);
  incidents_ = std::make_unique<IncidentKeeper>(std::move(options), *store_, metrics_, clock_);
  incidents_->load();
  incidents_->start();
  keys_ = std::make_unique<KeyRing>(*store_, clock_, config_.server.require_key);
  return keys_->load();
}

// What was changed at run time holds over the file.
Result<void> App::resolve_budgets() {
  book_ = std::make_unique<StoreBook>(*store_);
  TRY_ASSIGN(budgets_at_start_, BudgetKeeper::resolve(config_, *book_, clock_));
  return {};
}

Result<void> App::build_models() {
  launcher_ = config_.engines.launcher == "systemd" ? make_systemd_launcher(config_.engines.systemctl)
                                                    : make_child_launcher();
  TRY_ASSIGN(page_, ControlPage::open(config_.server.run_dir));
  TRY(open_lease());
  TRY(open_host());
  learned_ = std::make_unique<LearnedBook>(*store_, clock_);
  learned_->open(config_.default_model);
  if (config_.optional_model.has_value()) learned_->open(*config_.optional_model);
  supervisor_ = std::make_unique<Supervisor>(
      budgets_at_start_.config, *launcher_, clock_,
      Supervisor::Outside{
          .host = *host_,
          .reclaimer = *reclaimer_,
          .incidents = *incidents_,
          .page = page_.get(),
          .learned = learned_.get(),
          .lease_id = lease_ ? lease_page_id(*lease_) : "",
          .describe = ask_engine},
      [this] { on_models_changed(); });
  budget_target_ = std::make_unique<SupervisorBudgets>(*supervisor_, restart_limit(config_.engines));
  budgets_ = std::make_unique<BudgetKeeper>(BudgetKeeper::Parts{.configured = config_,
                                                                .book = *book_,
                                                                .target = *budget_target_,
                                                                .clock = clock_,
                                                                .describe = ask_engine,
                                                                .host = [this] { return read_host_facts(config_.memory); },
                                                                .held = held_bytes,
                                                                .check_change = [this] { return canary_->check_change(); },
                                                                .frozen = [this] { return frozen_text(watch_->pressure()); }},
                                            budgets_at_start_);
  std::vector<std::string> names{config_.default_model.name};
  if (config_.optional_model.has_value()) names.push_back(config_.optional_model->name);
  records_ = std::make_unique<RecordKeeper>(metrics_, *store_, names);
  register_model_metrics(metrics_, *supervisor_, *store_);
  incident_watch_ = std::make_unique<IncidentWatch>(
      IncidentWatch::Options{.state_dir = config_.server.state_dir,
                             .root = "",
                             .silence_limit = config_.engines.silence_deadline},
      *store_, *supervisor_, *incidents_, clock_);
  return {};
}

// Engines read the rules at every turn, so they hold for running ones too.
Result<void> App::open_lease() {
  if (config_.lease.mode != "on") return {};
  TRY_ASSIGN(lease_, make_lease_page(lease_page_path(config_.server.run_dir)));
  lease_->floor_permille.store(config_.lease.floor_percent * 10);
  lease_->quantum_ns.store(config_.lease.quantum_us * 1000);
  return {};
}

Result<void> App::open_watch() {
  const ServerConfig& server = config_.server;
  const bool units = config_.engines.launcher == "systemd";
  GuardWatch::Options options;
  options.guard = {.mode = config_.guard.mode != "auto" ? config_.guard.mode : units ? "unit" : "child",
                   .binary = config_.guard.binary,
                   .page = budget::guard_page_path(server.run_dir),
                   .blackbox = server.state_dir + "/blackbox",
                   .watchdog = config_.guard.watchdog,
                   .log = server.run_dir + "/guard.log"};
  options.floors = floors_;
  const Config& models = budgets_at_start_.config;
  options.model_files.push_back(models.default_model.file);
  options.default_batch_tokens = models.default_model.batch_tokens;
  if (models.optional_model.has_value()) {
    options.model_files.push_back(models.optional_model->file);
    options.optional_batch_tokens = models.optional_model->batch_tokens;
  }
  TRY_ASSIGN(watch_, GuardWatch::open(std::move(options), clock_, *supervisor_, metrics_,
                                      *incidents_));
  return {};
}

void App::make_canary() {
  const CanaryConfig& canary = config_.canary;
  canary_ = std::make_unique<Canary>(
      Canary::Options{.on = canary.mode == "on", .every = canary.every, .loss_percent = canary.loss_percent},
      *supervisor_, *store_, *incidents_, clock_, [this] { return watch_->pressure(); });
  if (!needs_pacing(config_)) return;
  pacing_ = std::make_unique<PacingKeeper>(*supervisor_->tenant(Role::default_model),
                                           *supervisor_->tenant(Role::optional_model),
                                           [this] { return canary_->solo_us(); });
}

Result<void> App::open_host() {
  TRY_ASSIGN(budget::HostProbe probe, budget::HostProbe::open(""));
  budget::HostReading reading;
  if (!probe.read(reading)) return make_error(Errc::io, "/proc/meminfo cannot be read");
  TRY_ASSIGN(floors_, memory_floors(config_.memory, reading.memory.total));
  driver_memory_ = DriverMemory::open({.mem_total_bytes = reading.memory.total}, clock_);
  const bool shared = driver_memory_ != nullptr;
  budget::LevelFloors floors = floors_;
  // Free and contiguous memory are the driver's need (U5 b, c): for our own pages the kernel makes room.
  if (!shared) floors.load_free_min = 0;
  TRY_ASSIGN(host_, make_host_view(floors, page_.get(), driver_memory_.get()));
  const std::string& reclaim = config_.memory.reclaim;
  if (reclaim == "never" || (reclaim == "auto" && !shared)) {
    reclaimer_ = make_no_reclaimer();
  } else if (::geteuid() == 0) {
    reclaimer_ = make_helper_reclaimer(binary_beside_us("tandem-reclaim"));
  } else {
    reclaimer_ = make_socket_reclaimer(kReclaimSocket);
  }
  return {};
}

Result<void> App::start_http() {
  const LimitsConfig& limits = config_.limits;
  HttpOptions options;
  options.front.framer.body_bytes_max = static_cast<size_t>(limits.body_bytes);
  options.front.header_deadline_ms = limits.header_deadline.count();
  options.front.body_deadline_ms = limits.body_deadline.count();
  options.front.idle_ms = limits.idle_deadline.count();
  options.front.connections_max = static_cast<size_t>(limits.connections);
  options.front.connections_per_address_max = static_cast<size_t>(limits.connections_per_address);
  options.streams_max = static_cast<size_t>(limits.streams);
  options.request_deadline_ms = limits.request_deadline.count();
  options.hosts = config_.server.hosts;
  TRY_ASSIGN(options.queue.key_weights, parse_key_weights(config_.queue.key_weights));
  options.queue.batch_keys = {config_.queue.batch_keys.begin(), config_.queue.batch_keys.end()};
  options.queue.deadline_ms = config_.queue.deadline.count();
  std::vector<Fd> listeners = systemd::passed_sockets();
  TRY_ASSIGN(const ListenAddress listen, parse_listen(config_.server.listen));
  if (listeners.empty()) {
    TRY_ASSIGN(Fd listener, listen_tcp(listen.host, listen.port));
    listeners.push_back(std::move(listener));
  }
  // A passed socket says for itself where it listens; the configuration knows nothing of it.
  bool loopback = true;
  for (const Fd& listener : listeners) loopback = loopback && bound_to_loopback(listener);
  if (!loopback && !config_.server.require_key) {
    return make_error(Errc::invalid_argument,
                      "server.require_key is false, but a passed socket listens outside loopback");
  }
  // Outside loopback clients come by whatever name the network gives this machine.
  options.check_host = loopback || !options.hosts.empty();
  TRY_ASSIGN(const uint16_t port, bound_port(listeners[0]));
  const bool v6 = listen.host.find(':') != std::string::npos;
  address_ = "http://" + (v6 ? "[" + listen.host + "]" : listen.host) + ":" + std::to_string(port);
  http_ = std::make_unique<HttpServer>(std::move(options),
                                       HttpServices{.clock = clock_,
                                                    .models = *supervisor_,
                                                    .authenticator = *keys_,
                                                    .records = *records_,
                                                    .metrics = metrics_,
                                                    .responses = store_.get(),
                                                    .memory = [this] { return pressure_brief_json(watch_->pressure()); },
                                                    .troubles = [this] {
                                                      return incidents_->open_kinds(Severity::error);
                                                    }});
  return http_->start(std::move(listeners));
}

Result<void> App::start_admin() {
  commands_ = std::make_unique<AdminCommands>(AdminCommands::Services{
      .config = config_,
      .clock = clock_,
      .supervisor = *supervisor_,
      .keys = *keys_,
      .store = *store_,
      .budgets = *budgets_,
      .incidents = *incidents_,
      .canary = *canary_,
      .address = address_,
      .pressure = [this] { return watch_->pressure(); },
      .pacing = [this] { return pacing_ ? pacing_->json() : Json(); },
      .active_answers = [this] { return static_cast<int64_t>(http_->active()); },
      .shut_down = [this] { stop_signal_.request(); }});
  admin_ = std::make_unique<AdminServer>(
      AdminServer::Options{.socket_path = config_.server.admin_socket,
                           .group = config_.server.admin_group},
      [this](const std::string& command, const Json& request, const AdminServer::Peer& peer) {
        return commands_->run(command, request, peer);
      });
  return admin_->start();
}

void App::on_models_changed() {
  std::string text;
  bool default_ready = false;
  for (Tenant* tenant : supervisor_->tenants()) {
    const ModelStatus status = tenant->status();
    text += (text.empty() ? "" : ", ") + tenant->info().name + ": " + model_state_name(status.state);
    if (tenant->info().role != Role::default_model) continue;
    default_ready = status.state == ModelState::ready;
    if (status.state == ModelState::loading) {
      systemd::extend_start(std::chrono::ceil<std::chrono::seconds>(config_.engines.load_deadline));
    }
  }
  systemd::notify_status(text);
  if (default_ready && !told_ready_) {
    told_ready_ = true;
    systemd::notify_ready();
  }
}

void App::serve() const {
  const auto period = systemd::watchdog_period();
  const auto limit = period.value_or(kIdlePoll);
  while (!stop_signal_.wait(limit)) systemd::notify_watchdog();
}

void App::stop() {
  log::info("stops: no new requests, waits for running answers");
  systemd::notify_stopping();
  supervisor_->begin_drain();
  http_->begin_drain();
  const SteadyTime end = clock_.now() + config_.limits.drain_deadline;
  while (http_->active() > 0 && clock_.now() < end) {
    if (stop_signal_.wait(kDrainPoll)) break;  // asked twice: do not wait
    systemd::notify_watchdog();
  }
  http_->stop();
  if (pacing_) pacing_->stop();
  incident_watch_.reset();
  supervisor_->stop(config_.engines.outlive);
  budgets_->stop();  // a restart that it waits for has ended with the supervisor
  canary_->stop();
  watch_->stop(config_.engines.outlive);  // last: the guard watches over the stop too
  admin_->stop();
  const auto flushed = store_->flush();
  if (!flushed.ok()) log::error("store: " + flushed.error().message);
  log::info("stopped");
}

}  // namespace

Result<void> run_app(const Config& config) {
  // One heap a thread, as glibc would have it, keeps the largest body of each of some 140 workers.
  if (::mallopt(M_ARENA_MAX, kHeapsMax) == 0) log::warning("mallopt: heaps are not bounded");
  const StopSignal stop_signal;
  App app(config, stop_signal);
  TRY(app.start());
  app.serve();
  app.stop();
  return {};
}

}  // namespace tandem::service
