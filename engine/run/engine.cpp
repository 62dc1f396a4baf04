#include "engine/run/engine.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/log.h"
#include "engine/run/device_lease.h"
#include "engine/run/loaded_model.h"
#include "engine/run/loop.h"
#include "engine/run/model_runner.h"
#include "engine/run/prepare_workers.h"
#include "engine/run/server.h"

namespace tandem::engine {
namespace {

constexpr size_t kLoopInboxMax = 1024;
constexpr size_t kIoInboxMax = 4096;
constexpr size_t kPrepareQueueMax = 512;
constexpr int kPrepareThreads = 2;  // one long prompt must not hold up the short ones
constexpr std::chrono::seconds kLastWordsTime{2};   // to tell why the load failed
constexpr std::chrono::seconds kLastWritesTime{5};  // to send what a drain left in buffers

log::Level level_from(const std::string& name) {
  if (name == "debug") return log::Level::debug;
  if (name == "warning") return log::Level::warning;
  if (name == "error") return log::Level::error;
  return log::Level::info;
}

// All threads inherit the mask, so signals arrive at the descriptor only.
Result<Fd> block_signals() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, nullptr);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  if (::pthread_sigmask(SIG_BLOCK, &set, nullptr) != 0) {
    return make_error(Errc::io, "cannot block signals");
  }
  Fd fd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd.valid()) return errno_error(Errc::io, "signalfd", errno);
  return fd;
}

Result<uint64_t> random_word() {
  uint64_t word = 0;
  if (::getrandom(&word, sizeof word, 0) != static_cast<ssize_t>(sizeof word)) {
    return errno_error(Errc::io, "getrandom", errno);
  }
  return word;
}

std::string hex(uint64_t word) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(word));
  return text;
}

struct Process {
  const EngineOptions& options;
  const Clock& clock;
  LoopInbox& loop_inbox;
  IoInbox& io_inbox;
  PrepareQueue& prepares;
  DeviceLease* lease;
};

// The io thread never waits for this one, so a full inbox empties.
void tell(const Process& process, IoMessage message) {
  while (!process.io_inbox.try_push(std::move(message))) ::poll(nullptr, 0, 1);
}

// Loads and runs until drained. An error means that the engine never became ready.
Result<void> serve(const Process& process, Result<GgufFile>& file) {
  if (!file.ok()) return file.error();
  const SteadyTime begun = process.clock.now();
  TRY_ASSIGN(const auto loaded, LoadedModel::load(*file, process.options, process.clock));
  TRY(file->check_unchanged());
  const StepLimits& limits = loaded->step_limits;
  ModelRunner runner(*loaded->step, process.clock,
                     {.limits = {.vocab = loaded->facts.vocab_size,
                                 .rows_max = limits.rows_max,
                                 .logit_rows_max = limits.logit_rows_max,
                                 .items_max = limits.items_max},
                      .quantum_us = process.options.quantum_us});
  TRY_ASSIGN(const uint64_t seed, random_word());
  Loop loop({.text = *loaded->text,
             .runner = runner,
             .store = *loaded->store,
             .ledger = loaded->ledger,
             .inbox = process.loop_inbox,
             .io = process.io_inbox,
             .clock = process.clock,
             .planner = loaded.get(),
             .lease = process.lease},
            {.context_tokens = loaded->facts.context_tokens_max,
             .slots = process.options.slots,
             .queue_max = process.options.queue_max,
             .batch_tokens = process.options.batch_tokens,
             .chunk_tokens = LoadedModel::kChunkTokens,
             .seed = seed,
             .commit = process.options.commit != 0,
             .weights_mapped_bytes = loaded->weights_mapped_bytes,
             .mask_bytes = LoadedModel::mask_bytes()});
  ConstraintCache constraints(loaded->text->token_trie());
  const PrepareWorkers workers(
      {.text = *loaded->text,
       .constraints = constraints,
       .context_tokens = loaded->facts.context_tokens_max,
       .prefixes = &loaded->store->prefix_index()},
      process.prepares, process.io_inbox, kPrepareThreads);
  const auto load_ms = std::chrono::duration_cast<std::chrono::milliseconds>(process.clock.now() -
                                                                             begun);
  log::info("ready after " + std::to_string(load_ms.count()) + " ms: " +
            log::quoted(loaded->facts.architecture) + ", " + loaded->facts.isa + ", " +
            std::to_string(loaded->facts.threads) + " threads, " +
            std::to_string(loaded->store->pool().counts().all) + " KV pages");
  tell(process, StateMessage{{.state = protocol::EngineState::ready,
                              .message = "",
                              .facts = loaded->facts}});
  loop.run();
  return {};
}

LoadMode load_mode(const EngineOptions& options) {
  if (options.load == "direct") return LoadMode::direct;
  return options.load == "mapped" ? LoadMode::mapped : preferred_load_mode(options.model);
}

int fail_start(const Error& error) {
  log::error(error.message);
  return 1;
}

}  // namespace

int run_engine(const EngineOptions& given) {
  EngineOptions options = given;
  log::init("engine " + options.name, level_from(options.log_level));
  auto signals = block_signals();
  if (!signals.ok()) return fail_start(signals.error());
  auto listener = options.socket.empty() ? Listener::inherit(options.listen_fd)
                                         : Listener::create(options.socket);
  if (!listener.ok()) return fail_start(listener.error());
  const auto instance = random_word();
  if (!instance.ok()) return fail_start(instance.error());
  const auto hash_seed = random_word();
  if (!hash_seed.ok()) return fail_start(hash_seed.error());
  options.hash_seed = *hash_seed;
  std::unique_ptr<DeviceLease> lease;
  if (!options.lease.empty()) {
    auto attached = DeviceLease::attach(options.lease, options.role == "optional"
                                                           ? budget::Role::optional_model
                                                           : budget::Role::default_model);
    if (!attached.ok()) return fail_start(attached.error());
    lease = std::move(*attached);
  }
  const SystemClock clock;
  // Opening reads the header only, so the first welcome can already name the weights.
  auto file = GgufFile::open(options.model, {.load = load_mode(options)});

  LoopInbox loop_inbox(kLoopInboxMax);
  IoInbox io_inbox(kIoInboxMax);
  PrepareQueue prepares(kPrepareQueueMax);
  ServerOptions server_options;
  server_options.identity.instance_id = hex(*instance);
  server_options.identity.pid = ::getpid();
  server_options.identity.model = options.name;
  server_options.identity.weights_hash = file.ok() ? file->identity() : "";
  server_options.identity.config_hash = options.config_hash;
  server_options.identity.lease_page = lease ? lease->page_id() : "";
  server_options.drain_timeout = std::chrono::seconds(options.drain_timeout_s);
  Server server({.inbox = io_inbox, .loop = loop_inbox, .prepares = prepares, .clock = clock},
                std::move(server_options), std::move(*listener), std::move(*signals));
  std::jthread io_thread([&server] { server.run(); });
  ::pthread_setname_np(io_thread.native_handle(), "engine-io");

  const Process process{options, clock, loop_inbox, io_inbox, prepares, lease.get()};
  const auto served = serve(process, file);
  if (!served.ok()) {
    log::error(served.error().message);
    tell(process, StateMessage{{.state = protocol::EngineState::failed,
                                .message = served.error().message,
                                .facts = {}}});
  }
  const auto grace = served.ok() ? kLastWritesTime : kLastWordsTime;
  tell(process, CloseMessage{.at = clock.now() + grace});
  io_thread.join();
  if (served.ok()) log::info("drained");
  return served.ok() ? 0 : 1;
}

}  // namespace tandem::engine
