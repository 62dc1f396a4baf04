#include "engine/model/step.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/model/execute.h"
#include "engine/model/operation_name.h"
#include "engine/model/parts.h"

namespace tandem::engine {
namespace {

std::vector<HeadSliceOp> cut_head(const kernels::WeightView& head, int64_t slice_bytes) {
  const int64_t row_bytes = kernels::row_bytes(head.type, head.width);
  const int64_t rows_each = std::max<int64_t>(1, slice_bytes / row_bytes);
  std::vector<HeadSliceOp> slices;
  for (int64_t row = 0; row < head.rows; row += rows_each) {
    slices.push_back({head, row, std::min(head.rows, row + rows_each)});
  }
  return slices;
}

int64_t logit_rows_of(const StepItem& item) {
  switch (item.logits) {
    case LogitsFor::none: return 0;
    case LogitsFor::last: return 1;
    case LogitsFor::all: return static_cast<int64_t>(item.tokens.size());
  }
  return 0;
}

Result<void> check_item(const StepItem& item, const ModelConfig& config, size_t index) {
  CHECK(item.sequence != nullptr);
  const std::string name = "step item " + std::to_string(index);
  if (item.tokens.empty()) return make_error(Errc::invalid_argument, name + " has no tokens");
  if (!item.sequence->valid()) {
    return make_error(Errc::invalid_argument,
                      name + ": the sequence was abandoned half-way and must be reset");
  }
  for (const int32_t token : item.tokens) {
    if (token < 0 || token >= config.vocab) {
      return make_error(Errc::invalid_argument, name + ": token " + std::to_string(token) +
                                                    " is outside the vocabulary of " +
                                                    std::to_string(config.vocab));
    }
  }
  return {};
}

Result<void> check_items(std::span<const StepItem> items, const ModelConfig& config,
                         const StepLimits& limits) {
  int64_t rows = 0;
  int64_t logit_rows = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    TRY(check_item(items[i], config, i));
    for (size_t other = 0; other < i; ++other) {
      if (items[other].sequence == items[i].sequence) {
        return make_error(Errc::invalid_argument, "step items " + std::to_string(other) + " and " +
                                                      std::to_string(i) + " are one sequence");
      }
    }
    rows += static_cast<int64_t>(items[i].tokens.size());
    logit_rows += logit_rows_of(items[i]);
  }
  const auto count = static_cast<int64_t>(items.size());
  if (count == 0) return make_error(Errc::invalid_argument, "a step needs at least one item");
  if (count > limits.items_max || rows > limits.rows_max || logit_rows > limits.logit_rows_max) {
    return make_error(Errc::too_large,
                      "step of " + std::to_string(count) + " items, " + std::to_string(rows) +
                          " rows, " + std::to_string(logit_rows) + " rows with logits; at most " +
                          std::to_string(limits.items_max) + ", " +
                          std::to_string(limits.rows_max) + ", " +
                          std::to_string(limits.logit_rows_max));
  }
  return {};
}

}  // namespace

struct Step::State {
  State(const Model& model_in, kernels::Compute& compute, Workspace workspace_in,
        const StepLimits& limits_in)
      : model(model_in),
        limits(limits_in),
        workspace(std::move(workspace_in)),
        execution{model_in.config(), workspace, compute, batch, {}} {}

  const Model& model;
  StepLimits limits;
  Workspace workspace;
  Batch batch;
  Execution execution;
  std::vector<OperationBody> head_slices;
  size_t cursor = 0;
  int64_t part_done = 0;  // of the operation at the cursor
  bool begun = false;

  [[nodiscard]] size_t list_size() const { return model.parts().operations.size(); }
  [[nodiscard]] const OperationBody& body(size_t index) const {
    const auto& list = model.parts().operations;
    return index < list.size() ? list[index].body : head_slices[index - list.size()];
  }
  void freeze(std::span<const StepItem> items);
  void reserve_batch();
};

// So that a step allocates nothing.
void Step::State::reserve_batch() {
  const auto rows = static_cast<size_t>(limits.rows_max);
  batch.items.reserve(static_cast<size_t>(limits.items_max));
  batch.delta.reserve(static_cast<size_t>(limits.items_max));
  batch.tokens.reserve(rows);
  batch.positions.reserve(rows);
  batch.kv_rows.reserve(rows);
  batch.logit_rows.reserve(static_cast<size_t>(limits.logit_rows_max));
}

// Everything was checked and reserved before; this only fills vectors inside their capacity.
void Step::State::freeze(std::span<const StepItem> items) {
  batch.items.clear();
  batch.tokens.clear();
  batch.positions.clear();
  batch.kv_rows.clear();
  batch.logit_rows.clear();
  batch.keys_seen = 0;
  for (const StepItem& item : items) {
    const int64_t logit_rows = logit_rows_of(item);
    const auto rows = static_cast<int64_t>(item.tokens.size());
    batch.items.push_back({.sequence = item.sequence,
                           .row_begin = batch.rows(),
                           .rows = rows,
                           .first_logit_row = static_cast<int64_t>(batch.logit_rows.size()),
                           .logit_rows = logit_rows});
    for (int64_t i = rows - logit_rows; i < rows; ++i) {
      batch.logit_rows.push_back(batch.rows() + i);
    }
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t position = item.sequence->length() + i;
      batch.tokens.push_back(item.tokens[static_cast<size_t>(i)]);
      batch.positions.push_back(static_cast<int32_t>(position));
      batch.kv_rows.push_back({.pages = item.sequence->page_bases().data(),
                               .position = static_cast<int32_t>(position)});
      batch.keys_seen += position + 1;
    }
  }
  execution.head_activations = {};
  cursor = 0;
  part_done = 0;
  begun = true;
}

Result<std::unique_ptr<Step>> Step::create(const Model& model, StateStore& store,
                                           kernels::Compute& compute, budget::Ledger& ledger,
                                           const StepLimits& limits) {
  CHECK(limits.rows_max > 0 && limits.logit_rows_max > 0 && limits.items_max > 0);
  CHECK(store.shape().page_bytes == page_bytes(model.config()));
  TRY_ASSIGN(Workspace workspace,
             Workspace::create(ledger, make_workspace_layout(model.config(), limits), limits.commit));
  auto state = std::make_unique<State>(model, compute, std::move(workspace), limits);
  state->reserve_batch();
  for (const HeadSliceOp& slice : cut_head(model.parts().head, limits.head_slice_bytes)) {
    state->head_slices.emplace_back(slice);
  }
  return std::make_unique<Step>(Key(), std::move(state));
}

size_t Step::scratch_bytes_per_thread(const Model& model) {
  const ModelConfig& config = model.config();
  return kernels::matmul_scratch_bytes(std::max({config.width, config.ff_width,
                                                 config.heads * config.head_dim,
                                                 config.delta.value_width()}));
}

int64_t Step::workspace_bytes(const Model& model, const StepLimits& limits) {
  return make_workspace_layout(model.config(), limits).bytes;
}

Result<void> Step::resize(const StepLimits& limits) {
  State& state = *state_;
  CHECK(!state.begun && limits.rows_max > 0 && limits.logit_rows_max > 0 && limits.items_max > 0);
  TRY(state.workspace.resize(make_workspace_layout(state.model.config(), limits)));
  state.limits.rows_max = limits.rows_max;
  state.limits.logit_rows_max = limits.logit_rows_max;
  state.limits.items_max = limits.items_max;
  state.reserve_batch();
  state.batch.logit_rows.clear();  // the logits of the step before are gone
  return {};
}

const StepLimits& Step::limits() const { return state_->limits; }

int64_t Step::untouched_bytes() const { return state_->workspace.untouched_bytes(); }

Step::Step(Key, std::unique_ptr<State> state) : state_(std::move(state)) {}

Step::~Step() {
  if (state_->begun) abandon();
}

Result<void> Step::begin(std::span<const StepItem> items) {
  State& state = *state_;
  CHECK_MSG(!state.begun, "the step before was neither finished nor abandoned");
  TRY(check_items(items, state.model.config(), state.limits));
  for (const StepItem& item : items) {
    TRY(item.sequence->reserve_tokens(item.sequence->length() +
                                      static_cast<int64_t>(item.tokens.size())));
  }
  state.freeze(items);
  return {};
}

bool Step::begun() const { return state_->begun; }

size_t Step::operation_count() const { return state_->list_size() + state_->head_slices.size(); }

std::string Step::operation_name(size_t index) const {
  CHECK(index < operation_count());
  const auto& list = state_->model.parts().operations;
  const int64_t layer = index < list.size() ? list[index].layer : -1;
  const std::string name = name_of(state_->body(index));
  return layer < 0 ? name : "layer " + std::to_string(layer) + " " + name;
}

OperationCost Step::operation_cost(size_t index) const {
  CHECK(index < operation_count() && state_->begun);
  return predict_cost(state_->model.config(), state_->batch, state_->body(index));
}

size_t Step::cursor() const { return state_->cursor; }

void Step::run_until(size_t end) {
  State& state = *state_;
  CHECK(state.begun && end <= operation_count());
  while (state.cursor < end) run_part(operation_extent(state.cursor));
}

int64_t Step::operation_extent(size_t index) const {
  CHECK(index < operation_count() && state_->begun);
  return engine::operation_extent(state_->batch, state_->body(index));
}

int64_t Step::part_done() const { return state_->part_done; }

void Step::run_part(int64_t count) {
  State& state = *state_;
  CHECK(state.begun && count > 0 && state.cursor < operation_count());
  const int64_t extent = operation_extent(state.cursor);
  const int64_t end = std::min(extent, state.part_done + count);
  execute(state.execution, state.body(state.cursor), {.begin = state.part_done, .end = end});
  state.part_done = end;
  if (end < extent) return;
  state.part_done = 0;
  ++state.cursor;
}

size_t Step::operation_kind(size_t index) const { return state_->body(index).index(); }

int64_t Step::rows() const { return state_->batch.rows(); }

int64_t Step::keys_seen() const { return state_->batch.keys_seen; }

size_t Step::logit_rows() const { return state_->batch.logit_rows.size(); }

std::span<const float> Step::logits(size_t row) const {
  CHECK(row < logit_rows() && done());
  const Workspace& workspace = state_->workspace;
  return {workspace.rows(Buffer::logits) +
              static_cast<int64_t>(row) * workspace.stride(Buffer::logits),
          static_cast<size_t>(state_->model.config().vocab)};
}

size_t Step::first_logit_row(size_t item) const {
  CHECK(item < state_->batch.items.size());
  return static_cast<size_t>(state_->batch.items[item].first_logit_row);
}

void Step::finish() {
  CHECK(state_->begun && done());
  for (const BatchItem& item : state_->batch.items) item.sequence->advance(item.rows);
  state_->begun = false;
}

void Step::abandon() {
  CHECK(state_->begun);
  if ((state_->cursor > 0 || state_->part_done > 0) && state_->model.config().delta_layers() > 0) {
    for (const BatchItem& item : state_->batch.items) item.sequence->invalidate();
  }
  state_->begun = false;
}

}  // namespace tandem::engine
