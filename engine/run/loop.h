// The step loop: the one owner of model state, KV pages and requests, on one thread and without locks.
// It meets the io thread only through its inbox and the outbox. One turn: take commands, admit what
// fits, choose a batch, run it in units, sample, emit. Cancels, lost connections and credit take
// effect between steps, so a cancelled request frees its slot and pages within one step.
//
// Admission: a free slot, and pages for prompt + min(max_tokens, 2,048) beside what the running
// requests were promised. Sequences grow by pages as they run; when none is left the youngest running
// request is preempted and recomputed later, and continues the same text. What can never fit fails at
// once with the numbers. Exactly one terminal frame per accepted request.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/protocol.h"
#include "engine/kv/sequence_state.h"
#include "engine/run/batch.h"
#include "engine/run/messages.h"
#include "engine/run/outbox.h"
#include "engine/run/request.h"
#include "engine/run/step_runner.h"
#include "engine/run/text_side.h"
#include "memory_budget/ledger.h"

namespace tandem::engine {

struct LoopOptions {
  int64_t context_tokens = 4096;
  int64_t slots = 4;
  int64_t queue_max = 64;
  int64_t batch_tokens = 512;
  int64_t chunk_tokens = 64;          // border of prefill chunks
  int64_t step_target_us = 150'000;   // prefill per step is cut to about this time
  int64_t commands_per_turn = 256;    // more wait for the next: a flood does not hold up a step
  uint64_t seed = 0;                  // for requests that bring none
};

class Loop {
 public:
  struct Parts {
    const TextSide& text;
    StepRunner& runner;
    StateStore& store;
    budget::Ledger& ledger;
    LoopInbox& inbox;
    IoInbox& io;
    const Clock& clock;
  };
  Loop(const Parts& parts, const LoopOptions& options);
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop();

  // Until SIGTERM's drain has ended (or the inbox is closed).
  void run();
  // One turn without waiting; false when there was nothing to do.
  bool turn();
  [[nodiscard]] bool ended() const { return ended_; }

  // Sum of page states, one slot per running request, promises as told; internal on a difference.
  [[nodiscard]] Result<void> check_integrity() const;
  [[nodiscard]] protocol::Stats stats() const;

 private:
  using Requests = std::vector<std::unique_ptr<Request>>;

  // commands
  void take(LoopCommand command);
  void submit(SubmitCommand command);
  void cancel(const RequestKey& key);
  void cancel_all();
  void lose(ConnectionId connection);
  void drain(const DrainCommand& command);
  void wait_for_command();
  void settle_drain();
  [[nodiscard]] Request* find(const RequestKey& key);

  // admission
  void admit();
  [[nodiscard]] int64_t pages_promised() const;
  [[nodiscard]] int64_t pages_for(const Request& request) const;
  void preempt_youngest();

  // one step
  [[nodiscard]] std::vector<BatchPiece> choose() const;
  [[nodiscard]] bool reserve(const std::vector<BatchPiece>& pieces);
  bool step();
  void run_units();
  void take_results(const std::vector<BatchPiece>& pieces);
  Result<void> take_result(Request& request, const BatchPiece& piece, size_t item);
  void learn_pace(const std::vector<BatchPiece>& pieces, int64_t step_us);

  // ends
  void end(Request& request, protocol::FinishReason reason);
  void end_failed(Request& request, const Error& error);
  void close(Request& request, RequestState state);
  void sweep();

  Parts parts_;
  LoopOptions options_;
  BatchLimits batch_limits_;
  Outbox outbox_;
  Requests waiting_;  // in order of arrival; preempted ones in front
  Requests running_;  // in order of admission: the last is the youngest
  std::set<ConnectionId> paused_;
  StepScratch scratch_;
  std::vector<StepItem> items_;
  size_t round_ = 0;               // turns the prefill round
  double prefill_us_per_row_ = 0;  // measured; 0: not yet
  uint64_t seeds_drawn_ = 0;

  protocol::EngineState state_ = protocol::EngineState::ready;
  std::vector<RequestKey> drain_waiters_;
  std::optional<SteadyTime> exit_by_;
  bool ended_ = false;
  protocol::Stats counters_;
};

}  // namespace tandem::engine
