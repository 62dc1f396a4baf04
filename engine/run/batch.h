// Chooses what one step computes: every sequence that only waits for its next token, then pieces of
// prompts, one block after the other in a fair round. Pure. A block is taken whole or not at all and
// ends at an absolute multiple of chunk_tokens, so where a prompt is cut does not depend on what ran
// beside it. rows_max and logit_rows_max must leave room for a block beside all decodes, or prompts
// would wait for decodes to end.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/step.h"

namespace tandem::engine {

struct BatchCandidate {
  int64_t computed = 0;     // tokens whose state is stored
  int64_t tokens = 0;       // prompt and generated so far; computed < tokens
  bool may_sample = true;   // false: no credit, so the last token must wait
  // Rows up to (not including) this position want logits: an echoed prompt is scored.
  int64_t scored_until = 0;
  // The piece ends here at the latest: its recurrent state is to be kept. 0: nowhere; else > computed.
  int64_t stop_at = 0;
};

struct BatchLimits {
  int64_t rows_max = 512;
  int64_t prefill_rows_max = 512;  // of rows_max; one block is taken in any case when it fits rows_max
  int64_t logit_rows_max = 40;
  int64_t items_max = 64;
  int64_t chunk_tokens = 64;
  int64_t scored_chunk_tokens = 32;  // of prompts whose every row wants logits
};

struct BatchPiece {
  size_t candidate = 0;
  int64_t count = 0;  // tokens from `computed` on
  LogitsFor logits = LogitsFor::none;
};

// `first_prefill` turns the round: the candidate index at which it starts.
std::vector<BatchPiece> choose_batch(std::span<const BatchCandidate> candidates,
                                     const BatchLimits& limits, size_t first_prefill);

}  // namespace tandem::engine
