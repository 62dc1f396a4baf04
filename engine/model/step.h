// One forward step over a frozen batch, as a resumable list of operations. A Step owns the
// workspace (reserved and mapped when it is created, tag workspace; nothing is allocated later) and
// is used again for step after step: begin -> run_until... -> finish or abandon.
//
// A batch mixes prefill chunks and decode rows of many sequences: an item is one sequence with its
// next tokens. Rows are the tokens of all items in item order. No operation mixes rows of different
// sequences, and no reduction depends on the number of rows, so a row's result is bit-identical
// alone, in any batch, and with any chunk borders.
//
// Between begin and finish the engine may stop after any operation and go on later; the sequences
// of the batch must not be touched meanwhile. Only the engine's loop thread calls it.
//
// Errors of begin, which changes no state when it fails (pages already reserved stay with their
// sequence): exhausted (KV pages), too_large (rows, logit rows, context), invalid_argument (a token
// outside the vocabulary, an empty item, a sequence twice or invalid).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "engine/kv/sequence_state.h"
#include "engine/model/model.h"
#include "memory_budget/ledger.h"

namespace tandem::kernels {
class Compute;
}

namespace tandem::engine {

enum class LogitsFor : uint8_t { none, last, all };  // rows of an item that go through the head

struct StepItem {
  SequenceState* sequence = nullptr;
  std::span<const int32_t> tokens;  // positions length(), length() + 1, ...; copied by begin()
  LogitsFor logits = LogitsFor::last;
};

struct StepLimits {
  int64_t rows_max = 512;        // largest chunk plus decode rows
  int64_t logit_rows_max = 16;   // rows with logits in one step; vocab * 4 bytes each
  int64_t items_max = 64;
  int64_t head_slice_bytes = int64_t{16} << 20;  // weights read by one slice of the output head
  Commit commit = Commit::at_first_use;          // of the workspace
};

// Where a prefill chunk that starts at `position` ends at the latest: chunk borders are absolute
// multiples of chunk_tokens, cached prefix or not.
constexpr int64_t chunk_end(int64_t position, int64_t chunk_tokens) {
  return (position / chunk_tokens + 1) * chunk_tokens;
}

// What an operation will move and compute for the frozen batch; predicts device time.
struct OperationCost {
  double bytes = 0;
  double flops = 0;
};

class Step {
 public:
  class Key {
    friend class Step;
    Key() = default;
  };
  [[nodiscard]] static Result<std::unique_ptr<Step>> create(const Model& model, StateStore& store,
                                                            kernels::Compute& compute,
                                                            budget::Ledger& ledger,
                                                            const StepLimits& limits);
  // For ComputeOptions::scratch_bytes_per_thread.
  [[nodiscard]] static size_t scratch_bytes_per_thread(const Model& model);
  // Between steps: other limits, and a workspace of another size; slices of the head and `commit` stay as
  // they were. Errors: exhausted, io; then nothing has changed.
  Result<void> resize(const StepLimits& limits);
  [[nodiscard]] const StepLimits& limits() const;
  // Reserved and not resident yet.
  [[nodiscard]] int64_t untouched_bytes() const;
  // Workspace bytes that create() will reserve; for plans.
  [[nodiscard]] static int64_t workspace_bytes(const Model& model, const StepLimits& limits);

  struct State;
  Step(Key, std::unique_ptr<State> state);  // use create()
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  ~Step();  // abandons a step that has begun

  Result<void> begin(std::span<const StepItem> items);
  [[nodiscard]] bool begun() const;

  // The list is the same for every batch of this model; head slices come last.
  [[nodiscard]] size_t operation_count() const;
  [[nodiscard]] std::string operation_name(size_t index) const;  // "layer 3 attention"
  [[nodiscard]] OperationCost operation_cost(size_t index) const;
  [[nodiscard]] size_t cursor() const;
  [[nodiscard]] bool done() const { return cursor() == operation_count(); }

  // Runs operations [cursor, end); end <= operation_count(). A smaller end than cursor does
  // nothing.
  void run_until(size_t end);
  void run_all() { run_until(operation_count()); }

  // The operation at the cursor in parts: it has operation_extent() of them (1: it cannot be cut), and
  // part_done() have run. run_part runs up to `count` more; with the last one the cursor moves on.
  [[nodiscard]] int64_t operation_extent(size_t index) const;
  [[nodiscard]] int64_t part_done() const;
  void run_part(int64_t count);
  // What a prediction may look at: the index of the operation's type, rows of the batch, and the keys
  // that they see, summed.
  [[nodiscard]] size_t operation_kind(size_t index) const;
  [[nodiscard]] int64_t rows() const;
  [[nodiscard]] int64_t keys_seen() const;

  // Valid from done() until the next begin(). Rows that wanted logits, in item and token order.
  [[nodiscard]] size_t logit_rows() const;
  [[nodiscard]] std::span<const float> logits(size_t row) const;  // [vocab]
  // First logit row of item i; an item with LogitsFor::none has none.
  [[nodiscard]] size_t first_logit_row(size_t item) const;

  // done() only: every sequence advances by its tokens.
  void finish();
  // Gives a begun step up. Plain sequences are as before begin(); hybrid ones become invalid, since
  // their recurrent state cannot be rewound, and must be reset and recomputed.
  void abandon();

 private:
  std::unique_ptr<State> state_;
};

}  // namespace tandem::engine
