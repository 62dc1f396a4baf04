// The step loop: the one owner of model state, KV pages and requests, on one thread and without locks.
// It meets the io thread only through its inbox and the outbox. One turn: take commands, admit what
// fits, choose a batch, run it in units, sample, emit. Cancels, lost connections and credit take
// effect between steps, so a cancelled request frees its slot and pages within one step.
//
// Admission: a free slot, and pages for prompt + min(max_tokens, the p90 of recent answers, 2,048)
// beside what the running requests were promised (policies/admission.h). Classes wait in their order
// (Submit::priority), inside one in order of arrival. Sequences grow by pages as they run; when none is left the
// youngest running request of the lowest class is preempted and recomputed later, and continues the same text.
// What can never fit fails at once with the numbers. Exactly one terminal frame per accepted request.
//
// Prefixes: full pages go to the store's prefix tree as they are computed, and a request starts behind what is
// found there (docs/prefix-cache.md). One whose prompt is being computed by another right now waits for it.
//
// Budgets (KV, slots, rows of a step) change between two steps and drop no request. More is reserved at
// once or refused; less is a target: what accepted requests need beyond it goes back as they end.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/protocol.h"
#include "engine/kv/sequence_state.h"
#include "engine/run/batch.h"
#include "engine/run/budgets.h"
#include "engine/run/device_lease.h"
#include "engine/run/messages.h"
#include "engine/run/outbox.h"
#include "engine/run/request.h"
#include "engine/run/step_runner.h"
#include "engine/run/text_side.h"
#include "memory_budget/ledger.h"
#include "policies/admission.h"

namespace tandem::engine {

struct LoopOptions {
  int64_t context_tokens = 4096;
  int64_t slots = 4;
  int64_t queue_max = 64;
  int64_t batch_tokens = 512;
  int64_t chunk_tokens = 64;          // border of prefill chunks
  int64_t step_target_us = 150'000;   // prefill per step is cut to about this time
  int64_t checkpoint_block_tokens = 256;  // hybrid models: states are kept at its multiples
  int64_t commands_per_turn = 256;    // more wait for the next: a flood does not hold up a step
  uint64_t seed = 0;                  // for requests that bring none
  bool commit = false;                // recurrent states are kept, touched, for all slots
  // For stats: weights that are pages of a file, and the cache of masks, which is reserved and fills up.
  int64_t weights_mapped_bytes = 0;
  int64_t mask_bytes = 0;
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
    const BudgetPlanner* planner = nullptr;  // none: resizes are bounded by the ledger only
    DeviceLease* lease = nullptr;            // none: the device is this engine's alone
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
  void leave_device();
  void settle_drain();
  [[nodiscard]] Request* find(const RequestKey& key);

  // admission, in loop_admit.cpp
  enum class Arrival : uint8_t { fresh, preempted };
  void enqueue(std::unique_ptr<Request> request, Arrival how);
  void admit();
  [[nodiscard]] int64_t pages_promised() const;
  [[nodiscard]] int64_t pages_for(const Request& request) const;
  void preempt_youngest();
  [[nodiscard]] bool waits_for_prefix(const Request& request, const PrefixMatch& match) const;
  void note_prefix(Request& request, const PrefixMatch& match);
  void keep_prefix(const Request& request);
  void add_prefixes(protocol::Stats& stats) const;
  [[nodiscard]] int64_t now_us() const {
    return std::chrono::duration_cast<std::chrono::microseconds>(parts_.clock.now().time_since_epoch())
        .count();
  }

  // one step
  [[nodiscard]] std::vector<BatchPiece> choose() const;
  [[nodiscard]] bool reserve(const std::vector<BatchPiece>& pieces);
  bool step();
  void run_units(bool only_decodes);
  void take_results(const std::vector<BatchPiece>& pieces);
  Result<void> take_result(Request& request, const BatchPiece& piece, size_t item);
  void learn_pace(const std::vector<BatchPiece>& pieces, int64_t step_us);

  // budgets, in loop_resize.cpp
  enum class Limits : uint8_t { raised, exact };
  void resize(const ResizeCommand& command);
  Result<void> raise(const protocol::Resize& wanted);
  Result<void> grow(int64_t pages, int64_t slots, int64_t batch_tokens);
  void settle_budgets();
  void follow_plan(const budget::PlanInput& plan, Limits how);
  void pace_prefill();
  [[nodiscard]] int64_t slots_in_force() const;
  [[nodiscard]] int64_t pages_least() const;
  [[nodiscard]] StepRunnerLimits runner_limits(int64_t slots, int64_t batch_tokens) const;
  [[nodiscard]] protocol::Resized resized() const;
  void add_memory(protocol::Stats& stats) const;

  // ends
  void end(Request& request, protocol::FinishReason reason);
  void end_failed(Request& request, const Error& error);
  void close(Request& request, RequestState state);
  void sweep();

  Parts parts_;
  LoopOptions options_;
  Budgets budgets_;               // targets
  int64_t kv_target_pages_ = 0;
  int64_t shed_chunk_tokens_ = 0;  // 0: none
  budget::PlanInput plan_;         // of the targets, when there is a planner
  bool settled_ = true;            // nothing is held beyond the targets
  BatchLimits batch_limits_;
  int64_t paced_rows_ = 0;         // prompt rows of a step of about the target time
  Outbox outbox_;
  Requests waiting_;  // by class, then in order of arrival; preempted ones in front
  Requests running_;  // in order of admission: the last is the youngest
  std::set<ConnectionId> paused_;
  StepScratch scratch_;
  std::vector<StepItem> items_;
  size_t round_ = 0;               // turns the prefill round
  policies::AnswerLengths answer_lengths_;
  double prefill_us_per_row_ = 0;  // measured; 0: not yet
  uint64_t seeds_drawn_ = 0;

  protocol::EngineState state_ = protocol::EngineState::ready;
  std::vector<RequestKey> drain_waiters_;
  std::optional<SteadyTime> exit_by_;
  bool ended_ = false;
  protocol::Stats counters_;
};

}  // namespace tandem::engine
