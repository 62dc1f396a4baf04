// Runs one operation for the frozen batch, and predicts what it will cost. One implementation per
// device; today the CPU (execute_cpu.cpp). Called by Step only, on the engine's loop thread.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kv/sequence_state.h"
#include "engine/model/config.h"
#include "engine/model/operation.h"
#include "engine/model/step.h"
#include "engine/model/workspace.h"
#include "kernels/attention.h"
#include "kernels/compute.h"
#include "kernels/gdn.h"
#include "kernels/matmul.h"

namespace tandem::engine {

static_assert(kPageTokens == kernels::kPageTokens);

struct BatchItem {
  SequenceState* sequence = nullptr;
  int64_t row_begin = 0;
  int64_t rows = 0;
  int64_t first_logit_row = 0;
  int64_t logit_rows = 0;
};

// What begin() freezes. Capacities are set once, so that a step allocates nothing.
struct Batch {
  std::vector<BatchItem> items;
  std::vector<int32_t> tokens;              // [rows]
  std::vector<int32_t> positions;           // [rows]
  std::vector<kernels::KvRow> kv_rows;      // [rows]
  std::vector<int64_t> logit_rows;          // row of the batch for each logit row
  std::vector<kernels::GdnSequence> delta;  // [items], refilled for each layer
  int64_t keys_seen = 0;                    // sum over rows of position + 1

  [[nodiscard]] int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
};

struct Execution {
  const ModelConfig& config;
  Workspace& workspace;
  kernels::Compute& compute;
  Batch& batch;
  kernels::Activations head_activations;  // made by HeadInputOp, read by the head slices
  kernels::Activations activations;       // made by the first part of a ProjectOp, read by all
};

// Where layer `slot` keeps its keys and values inside a page; its state inside a sequence's block.
struct KvPlace {
  size_t key_offset = 0;    // bytes from the page's base
  size_t value_offset = 0;
};
kernels::KvShape kv_shape(const ModelConfig& config);
KvPlace kv_place(const ModelConfig& config, int64_t slot);
int64_t page_bytes(const ModelConfig& config);

struct DeltaPlace {
  int64_t conv_offset = 0;  // floats from the start of the sequence's recurrent state
  int64_t state_offset = 0;
};
kernels::GdnShape delta_shape(const ModelConfig& config);
DeltaPlace delta_place(const ModelConfig& config, int64_t slot);
int64_t recurrent_bytes(const ModelConfig& config);

// How far an operation can be cut: products by rows of their weights (all outputs together), attention,
// convolutions and the delta rule by rows of the batch, the rest not at all (1). Results do not depend on where it is cut.
int64_t operation_extent(const Batch& batch, const OperationBody& operation);
struct OperationPart {
  int64_t begin = 0;
  int64_t end = 0;
};
// Parts come in order, without gaps; the first one prepares what all share.
void execute(Execution& execution, const OperationBody& operation, const OperationPart& part);
OperationCost predict_cost(const ModelConfig& config, const Batch& batch,
                           const OperationBody& operation);

}  // namespace tandem::engine
