// The part of Loop that runs one step; see loop.h.
#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "engine/run/loop.h"

namespace tandem::engine {
namespace {

constexpr int64_t kStepsBetweenChecks = 1024;

}  // namespace

std::vector<BatchPiece> Loop::choose() const {
  std::vector<BatchCandidate> candidates;
  candidates.reserve(running_.size());
  for (const auto& request : running_) {
    candidates.push_back(request->candidate(paused_.contains(request->key().connection)));
    if (!parts_.store.keeps_checkpoints()) continue;
    candidates.back().stop_at = request->next_checkpoint(options_.checkpoint_block_tokens);
  }
  return choose_batch(candidates, batch_limits_, round_);
}

// Pages for all pieces; false after a preemption, which changes the batch.
bool Loop::reserve(const std::vector<BatchPiece>& pieces) {
  for (const BatchPiece& piece : pieces) {
    Request& request = *running_[piece.candidate];
    const auto reserved = request.sequence()->reserve_tokens(request.computed() + piece.count);
    if (reserved.ok()) continue;
    preempt_youngest();
    return false;
  }
  return true;
}

bool Loop::step() {
  if (running_.empty()) return false;
  std::vector<BatchPiece> pieces = choose();
  while (!reserve(pieces)) pieces = choose();
  if (pieces.empty()) return false;  // every running request waits for credit
  items_.clear();
  for (const BatchPiece& piece : pieces) {
    const Request& request = *running_[piece.candidate];
    items_.push_back({.sequence = request.sequence(),
                      .tokens = request.tokens().subspan(static_cast<size_t>(request.computed()),
                                                         static_cast<size_t>(piece.count)),
                      .logits = piece.logits});
  }
  const SteadyTime begun = parts_.clock.now();
  if (const auto started = parts_.runner.begin(items_); !started.ok()) {
    // Pages are reserved and every token was checked, so this is no fault of one request.
    for (const BatchPiece& piece : pieces) end_failed(*running_[piece.candidate], started.error());
    return true;
  }
  run_units(std::all_of(pieces.begin(), pieces.end(),
                        [](const BatchPiece& piece) { return piece.count == 1; }));
  const int64_t step_us = std::chrono::duration_cast<std::chrono::microseconds>(
                              parts_.clock.now() - begun)
                              .count();
  ++counters_.steps;
  counters_.step_us_total += step_us;
  learn_pace(pieces, step_us);
  take_results(pieces);
  ++round_;
  if (counters_.steps % kStepsBetweenChecks == 0) {
    sweep();
    const auto sound = check_integrity();
    CHECK_MSG(sound.ok(), sound.ok() ? "" : sound.error().message.c_str());
  }
  return true;
}

// The batch is frozen from begin() to finish(). With a lease the device is this engine's inside units only;
// without one, a step is as many units as the runner makes of it.
void Loop::run_units(bool only_decodes) {
  DeviceLease* lease = parts_.lease;
  if (lease == nullptr) {
    while (!parts_.runner.run_unit()) {
    }
  } else {
    lease->begin_step();
    lease->begin_unit(parts_.runner.plan_unit(lease->unit_max_ns()));
    while (!parts_.runner.run_unit()) {
      lease->end_unit();
      lease->begin_unit(parts_.runner.plan_unit(lease->unit_max_ns()));
    }
    lease->end_step(only_decodes);
  }
  parts_.runner.finish();
}

void Loop::take_results(const std::vector<BatchPiece>& pieces) {
  for (size_t item = 0; item < pieces.size(); ++item) {
    if (item > 0 && parts_.lease != nullptr) parts_.lease->between_requests();
    Request& request = *running_[pieces[item].candidate];
    const auto taken = take_result(request, pieces[item], item);
    if (!taken.ok()) end_failed(request, taken.error());
  }
}

Result<void> Loop::take_result(Request& request, const BatchPiece& piece, size_t item) {
  const int64_t first = request.computed() - piece.count;
  if (piece.logits == LogitsFor::all) {
    for (int64_t row = 0; row < piece.count; ++row) {
      TRY(request.score_prompt(first + row, parts_.runner.logits(item, static_cast<size_t>(row)),
                               scratch_.sampler));
    }
  }
  if (first < request.prompt_tokens()) {
    counters_.prompt_tokens += std::min(piece.count, request.prompt_tokens() - first);
  }
  if (request.computed() < request.token_count()) {
    keep_prefix(request);
    return {};
  }
  if (request.wants_prompt_event()) {
    outbox_.event(request.key(), protocol::Event{request.take_prompt_event()});
  }
  if (request.scores_only()) {
    keep_prefix(request);
    end(request, protocol::FinishReason::length);
    return {};
  }
  const size_t last_row =
      piece.logits == LogitsFor::all ? static_cast<size_t>(piece.count - 1) : 0;
  TRY_ASSIGN(TokenOutcome outcome, request.generate(parts_.runner.logits(item, last_row), scratch_,
                                                    parts_.clock.now()));
  keep_prefix(request);
  if (request.state() == RequestState::prefilling) request.move_to(RequestState::decoding);
  if (outcome.event) {
    ++counters_.completion_tokens;
    outbox_.event(request.key(), protocol::Event{std::move(*outcome.event)});
    for (const protocol::Event& more : outcome.more) outbox_.event(request.key(), more);
  }
  if (outcome.finish) end(request, *outcome.finish);
  return {};
}

// Cancels and new work wait for the end of a step, so prefill is cut to a step of about the target
// time on this machine. Only steps with a whole block tell the pace: a small batch is bound by the
// weights and would look slow per row.
void Loop::learn_pace(const std::vector<BatchPiece>& pieces, int64_t step_us) {
  int64_t rows = 0;
  for (const BatchPiece& piece : pieces) rows += piece.count;
  if (rows < options_.chunk_tokens) return;
  constexpr double kNewest = 0.3;
  const double us_per_row = static_cast<double>(step_us) / static_cast<double>(rows);
  prefill_us_per_row_ = prefill_us_per_row_ == 0
                            ? us_per_row
                            : (1 - kNewest) * prefill_us_per_row_ + kNewest * us_per_row;
  const double target_rows =
      static_cast<double>(options_.step_target_us) / std::max(prefill_us_per_row_, 1e-3);
  const auto blocks = static_cast<int64_t>(
      std::min(target_rows, static_cast<double>(batch_limits_.rows_max)) /
      static_cast<double>(options_.chunk_tokens));
  paced_rows_ = std::max<int64_t>(blocks, 1) * options_.chunk_tokens;
  pace_prefill();
}

// Where prompts are cut changes no token, so shedding may cut them shorter at any time.
void Loop::pace_prefill() {
  const int64_t shed = shed_chunk_tokens_ / options_.chunk_tokens * options_.chunk_tokens;
  batch_limits_.prefill_rows_max =
      shed_chunk_tokens_ == 0 ? paced_rows_
                              : std::min(paced_rows_, std::max(shed, options_.chunk_tokens));
}

}  // namespace tandem::engine
