// The shape of a model as a memory plan needs it: bytes per token and per sequence, by kind of layer,
// and the widths that its workspace follows from. Read from the JSON that `tandem-engine --describe`
// prints (metadata of the file only), also for families that our engine cannot run yet.
// The formulas are those of docs/memory.md; KV is f16, recurrent state f32. Pure; any thread.
//
// Errors: corrupt (a field is missing, of the wrong type or out of range, named in the message and in
// Error::path), invalid_argument (a family whose layers we do not know). The ranges are such that
// every figure of a shape is below 2^56, so sums of a few cannot overflow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace tandem::budget {

inline constexpr int64_t kShapePageTokens = 32;  // tokens of one KV page, as in our engine
inline constexpr int64_t kShapeBytesMax = int64_t{1} << 56;

enum class LayerKind : uint8_t {
  full,       // keeps keys and values of every token
  sliding,    // keeps those of a window
  recurrent,  // keeps a state of constant size
  borrowing,  // reads the cache of an earlier layer, keeps nothing
};

// Attention geometry of one kind of layer.
struct KvGeometry {
  int64_t heads = 0;
  int64_t key_length = 0;
  int64_t value_length = 0;

  [[nodiscard]] int64_t bytes_per_token() const { return 2 * heads * (key_length + value_length); }
};

// What our engine says about a file whose layers it can run: exact for the slots, context, step size
// and threads that it was asked for.
struct EngineFigures {
  int64_t page_bytes = 0;
  int64_t recurrent_bytes = 0;
  int64_t workspace_bytes = 0;
  int64_t tokenizer_bytes = 0;
  int64_t mask_bytes = 0;
};

// Of an engine of others (docs/engines.md): what no formula of ours gives. 0: as the formulas.
struct ForeignFigures {
  std::string engine;        // "vllm"
  bool whole_cache = false;  // it takes its KV budget in one piece, whatever the layers are
  int64_t workspace_bytes = 0;
  int64_t load_peak_bytes = 0;
};

struct ModelShape {
  std::string architecture;
  std::string name;
  std::string file;
  std::string identity;
  int64_t file_bytes = 0;

  int64_t weight_bytes = 0;        // all tensors, draft blocks included
  int64_t draft_weight_bytes = 0;  // of them, blocks behind the trunk
  int64_t context_tokens = 0;      // the model's own

  std::vector<LayerKind> layers;  // of the trunk
  int64_t draft_blocks = 0;
  int64_t full_bytes_per_token = 0;     // KV of all full layers
  int64_t sliding_bytes_per_token = 0;  // KV of all sliding layers, inside the window
  int64_t draft_bytes_per_token = 0;    // KV of all draft blocks
  int64_t window_tokens = 0;            // 0: no sliding layers
  int64_t recurrent_bytes = 0;          // state of one sequence over all recurrent layers

  // Floats of one row (token) of a step's workspace, and of one row with logits.
  int64_t row_floats = 0;
  int64_t logit_row_floats = 0;

  int64_t vocab_rows = 0;
  int64_t tokens = 0;
  int64_t token_text_bytes = 0;
  int64_t merges = 0;
  int64_t merge_text_bytes = 0;

  std::optional<EngineFigures> engine;
  std::optional<ForeignFigures> foreign;
  std::string engine_why;  // why our engine cannot run the file; empty when it can

  [[nodiscard]] int64_t count(LayerKind kind) const;
};

Result<ModelShape> read_shape(const Json& described);

}  // namespace tandem::budget
