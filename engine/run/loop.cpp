#include "engine/run/loop.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/overloaded.h"
#include "engine/run/process_memory.h"

namespace tandem::engine {
namespace {

BatchLimits limits_from(const StepRunnerLimits& runner, const LoopOptions& options) {
  BatchLimits limits;
  limits.rows_max = std::min(runner.rows_max, std::max(options.batch_tokens,
                                                       options.slots + options.chunk_tokens));
  limits.logit_rows_max = runner.logit_rows_max;
  limits.items_max = runner.items_max;
  limits.chunk_tokens = options.chunk_tokens;
  limits.prefill_rows_max = 2 * options.chunk_tokens;  // until the pace is known
  // Room for one block of either kind beside all decodes: prompts always make progress.
  CHECK(limits.items_max >= options.slots);
  CHECK(limits.rows_max >= options.slots + limits.chunk_tokens);
  CHECK(limits.logit_rows_max >= options.slots + limits.scored_chunk_tokens);
  return limits;
}

void log_end(const Request& request, const char* how, const protocol::FinishEvent& event) {
  const protocol::Timing& t = event.timing;
  std::string line = "request " + std::to_string(request.key().id) + " " + how +
                     ": prompt_tokens " + std::to_string(event.usage.prompt_tokens) +
                     " completion_tokens " + std::to_string(event.usage.completion_tokens) +
                     " queue_us " + std::to_string(t.queue_us) + " prefill_us " +
                     std::to_string(t.prefill_us) + " decode_us " + std::to_string(t.decode_us);
  log::info(line);
}

}  // namespace

Loop::Loop(const Parts& parts, const LoopOptions& options)
    : parts_(parts),
      options_(options),
      budgets_{.kv_bytes = parts.store.pool().bytes(),
               .slots = options.slots,
               .batch_tokens = options.batch_tokens},
      kv_target_pages_(parts.store.pool().counts().all),
      batch_limits_(limits_from(parts.runner.limits(), options)),
      paced_rows_(batch_limits_.prefill_rows_max),
      outbox_(parts.io),
      scratch_(parts.text.token_trie()) {}

Loop::~Loop() = default;

void Loop::run() {
  while (!ended_) {
    if (!turn()) wait_for_command();
  }
}

bool Loop::turn() {
  bool worked = false;
  for (int64_t taken = 0; taken < options_.commands_per_turn; ++taken) {
    auto command = parts_.inbox.try_pop();
    if (!command) break;
    take(std::move(*command));
    worked = true;
  }
  if (exit_by_ && parts_.clock.now() >= *exit_by_) cancel_all();
  sweep();
  parts_.store.tell_time(now_us(), prefill_us_per_row_);
  settle_budgets();
  admit();
  if (step()) {
    worked = true;
  } else {
    leave_device();
  }
  sweep();
  settle_drain();
  if (!outbox_.flush()) return false;
  if (!worked && running_.empty()) {
    const auto sound = check_integrity();
    CHECK_MSG(sound.ok(), sound.ok() ? "" : sound.error().message.c_str());
  }
  return worked;
}

void Loop::leave_device() {
  if (parts_.lease != nullptr) parts_.lease->go_idle();
}

// Sleeps until a command comes; shortly when the io thread has to catch up.
void Loop::wait_for_command() {
  leave_device();
  if (ended_) return;
  std::optional<LoopCommand> command;
  if (!outbox_.empty()) {
    command = parts_.inbox.pop_until(parts_.clock.now() + std::chrono::milliseconds(1));
  } else if (exit_by_) {
    command = parts_.inbox.pop_until(*exit_by_);
  } else {
    command = parts_.inbox.pop();
    if (!command) ended_ = true;  // closed
  }
  if (command) take(std::move(*command));
}

void Loop::take(LoopCommand command) {
  std::visit(Overloaded{
                 [this](std::unique_ptr<SubmitCommand>& c) { submit(std::move(*c)); },
                 [this](CancelCommand& c) { cancel(c.key); },
                 [this](CreditCommand& c) {
                   if (Request* request = find(c.key)) request->add_credit(c.events);
                 },
                 [this](ConnectionLostCommand& c) { lose(c.connection); },
                 [this](FlowCommand& c) {
                   c.paused ? void(paused_.insert(c.connection))
                            : void(paused_.erase(c.connection));
                 },
                 [this](StatsCommand& c) {
                   outbox_.frame(c.key, FrameType::stats_reply, stats().to_json());
                 },
                 [this](DrainCommand& c) { drain(c); },
                 [this](ResizeCommand& c) { resize(c); },
             },
             command);
}

Request* Loop::find(const RequestKey& key) {
  for (const Requests* list : {&running_, &waiting_}) {
    for (const auto& request : *list) {
      if (request->key() == key && !is_terminal(request->state())) return request.get();
    }
  }
  return nullptr;
}

void Loop::submit(SubmitCommand command) {
  const RequestKey key = command.key;
  const auto refuse = [&](const Error& error) {
    ++counters_.requests_failed;
    outbox_.failed(key, error);
  };
  if (state_ != protocol::EngineState::ready) {
    return refuse(make_error(Errc::unavailable, "the engine is draining"));
  }
  const int64_t open = static_cast<int64_t>(running_.size() + waiting_.size());
  if (open >= budgets_.slots + options_.queue_max) {
    return refuse(make_error(Errc::exhausted, std::to_string(open) + " requests, " +
                                                  std::to_string(budgets_.slots) + " slots and " +
                                                  std::to_string(options_.queue_max) +
                                                  " places in the queue"));
  }
  const auto prompt = static_cast<int64_t>(command.prompt.size());
  const int64_t kv_tokens = kv_target_pages_ * kPageTokens;
  const RequestLimits limits{
      .vocab = parts_.runner.limits().vocab,
      .context_tokens = std::min(options_.context_tokens, kv_tokens),
  };
  if (prompt + 1 <= options_.context_tokens) {  // else the context is the reason to give
    const auto fits = parts_.store.check_can_ever_fit(prompt + 1, kv_target_pages_);
    if (!fits.ok()) return refuse(fits.error());
  }
  uint64_t drawn = 0;
  if (!command.submit.sampling.seed) drawn = options_.seed + 0x9E3779B97F4A7C15U * ++seeds_drawn_;
  auto request = Request::create(std::move(command), parts_.text, limits, drawn);
  if (!request.ok()) return refuse(request.error());
  enqueue(std::move(*request), Arrival::fresh);
}

void Loop::cancel(const RequestKey& key) {
  if (Request* request = find(key)) end(*request, protocol::FinishReason::cancelled);
}

void Loop::cancel_all() {
  for (Requests* list : {&running_, &waiting_}) {
    for (const auto& request : *list) {
      if (!is_terminal(request->state())) end(*request, protocol::FinishReason::cancelled);
    }
  }
}

void Loop::lose(ConnectionId connection) {
  for (Requests* list : {&running_, &waiting_}) {
    for (const auto& request : *list) {
      const bool theirs = request->key().connection == connection;
      if (theirs && !is_terminal(request->state())) {
        end(*request, protocol::FinishReason::cancelled);
      }
    }
  }
  std::erase_if(drain_waiters_, [&](const RequestKey& key) { return key.connection == connection; });
  paused_.erase(connection);
  outbox_.drop(connection);
}

void Loop::drain(const DrainCommand& command) {
  if (command.key) drain_waiters_.push_back(*command.key);
  if (command.exit_by) exit_by_ = *command.exit_by;
  if (state_ == protocol::EngineState::draining) return;
  state_ = protocol::EngineState::draining;
  outbox_.state({.state = state_, .message = "draining", .facts = {}});
  log::info("draining: " + std::to_string(running_.size()) + " running, " +
            std::to_string(waiting_.size()) + " waiting");
}

void Loop::settle_drain() {
  if (state_ != protocol::EngineState::draining || !running_.empty() || !waiting_.empty()) return;
  for (const RequestKey& key : std::exchange(drain_waiters_, {})) {
    outbox_.frame(key, FrameType::drained, Json::object());
  }
  if (exit_by_ && outbox_.flush()) ended_ = true;
}

void Loop::end(Request& request, protocol::FinishReason reason) {
  RequestEnd last = request.finish(reason, parts_.clock.now());
  const protocol::FinishEvent& event = last.event;
  const bool cancelled = reason == protocol::FinishReason::cancelled;
  cancelled ? ++counters_.requests_cancelled : ++counters_.requests_finished;
  if (!cancelled && !request.scores_only()) answer_lengths_.add(request.generated());
  log_end(request, finish_reason_name(event.reason), event);
  close(request, cancelled ? RequestState::cancelled : RequestState::finished);
  for (const protocol::Event& more : last.more) outbox_.event(request.key(), more);
  outbox_.event(request.key(), protocol::Event{std::move(last.event)});
}

void Loop::end_failed(Request& request, const Error& error) {
  ++counters_.requests_failed;
  log::warning("request " + std::to_string(request.key().id) + " failed: " + error.message);
  if (request.sequence() != nullptr) request.sequence()->doubt();
  close(request, RequestState::failed);
  outbox_.failed(request.key(), error);
}

// The one way to a terminal state: slot and pages are free when it returns.
void Loop::close(Request& request, RequestState state) {
  request.move_to(state);
  request.drop_sequence();
}

// Removes ended requests from the lists.
void Loop::sweep() {
  const auto is_ended = [](const auto& request) { return is_terminal(request->state()); };
  std::erase_if(running_, is_ended);
  std::erase_if(waiting_, is_ended);
}

Result<void> Loop::check_integrity() const {
  TRY(parts_.store.check_integrity());
  const auto broken = [](std::string what) { return make_error(Errc::internal, std::move(what)); };
  if (parts_.store.sequences() != static_cast<int64_t>(running_.size())) {
    return broken(std::to_string(parts_.store.sequences()) + " sequences, " +
                  std::to_string(running_.size()) + " running requests");
  }
  if (static_cast<int64_t>(running_.size()) > parts_.runner.limits().items_max) {
    return broken("more requests than slots");
  }
  for (const auto& request : running_) {
    const bool runs = request->state() == RequestState::prefilling ||
                      request->state() == RequestState::decoding;
    if (!runs || request->sequence() == nullptr) return broken("a running request without a slot");
  }
  for (const auto& request : waiting_) {
    if (request->state() != RequestState::queued || request->sequence() != nullptr) {
      return broken("a waiting request with a slot");
    }
  }
  return {};
}

protocol::Stats Loop::stats() const {
  protocol::Stats stats = counters_;
  const PageCounts& pages = parts_.store.pool().counts();
  stats.state = state_;
  stats.running = static_cast<int64_t>(running_.size());
  stats.waiting = static_cast<int64_t>(waiting_.size());
  stats.slots = budgets_.slots;
  stats.kv_pages_total = pages.all;
  stats.kv_pages_free = pages.free;
  stats.kv_pages_cached = pages.cached;
  stats.kv_pages_owned = pages.owned;
  add_prefixes(stats);
  stats.kv_page_bytes = parts_.store.pool().page_bytes();
  stats.kv_bytes_target = kv_target_pages_ * stats.kv_page_bytes;
  stats.batch_tokens = runner_limits(budgets_.slots, budgets_.batch_tokens).rows_max;
  stats.shed_chunk_tokens = shed_chunk_tokens_;
  add_memory(stats);
  if (parts_.lease != nullptr) {
    parts_.lease->add_stats(stats);
    stats.lease_error_permille = parts_.runner.error_permille();
  }
  return stats;
}

// Rights are what is reserved and the states of slots that are free; what of them the kernel does not
// show as used in MemAvailable is unspent.
void Loop::add_memory(protocol::Stats& stats) const {
  const budget::Ledger& ledger = parts_.ledger;
  stats.ledger_bytes = ledger.held_total();
  stats.ledger_weights_bytes = ledger.held(budget::Tag::weights);
  stats.ledger_kv_bytes = ledger.held(budget::Tag::kv);
  stats.ledger_recurrent_state_bytes = ledger.held(budget::Tag::recurrent_state);
  stats.ledger_workspace_bytes = ledger.held(budget::Tag::workspace);
  stats.ledger_tokenizer_bytes = ledger.held(budget::Tag::tokenizer);
  stats.ledger_checkpoint_bytes = ledger.held(budget::Tag::checkpoint);
  stats.weights_mapped_bytes = options_.weights_mapped_bytes;
  const int64_t free_slots = std::max<int64_t>(0, budgets_.slots - parts_.store.sequences());
  const int64_t states_to_come =
      free_slots * parts_.store.shape().recurrent_bytes - parts_.store.spare_state_bytes();
  const auto masks = static_cast<int64_t>(scratch_.mask.cache.memory_bytes());
  stats.unspent_bytes = parts_.store.pool().untouched_bytes() + parts_.runner.untouched_bytes() +
                        std::max<int64_t>(0, states_to_come) +
                        parts_.store.checkpoints().untouched_bytes() +
                        std::max<int64_t>(0, options_.mask_bytes - masks) +
                        options_.weights_mapped_bytes;
  stats.committed_bytes = std::max<int64_t>(
      0, stats.ledger_bytes + std::max<int64_t>(0, states_to_come) - stats.unspent_bytes);
  const ProcessMemory memory = read_process_memory();
  stats.resident_bytes = memory.resident_bytes;
  stats.anonymous_bytes = memory.anonymous_bytes;
}

}  // namespace tandem::engine
