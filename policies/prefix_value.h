// What a piece of a prefix cache is worth: seconds of prefill that keeping it saves per second of time,
// per byte that it holds. Eviction takes the least worth first. Pure; values, no thread of their own.
//
// A piece is expected to be used again at (uses + 1) / (idle + kIdleOffset): one that was never used
// counts as one use at its making, so new pieces get their chance and old ones fade. This is the
// "flops saved per byte, with recency" rule with measured seconds in the place of flops.
#pragma once

#include <cstdint>

namespace tandem::policies {

struct CachedPiece {
  double tokens = 0;    // that need no prefill when it is used
  int64_t bytes = 1;    // that it holds; > 0
  int64_t uses = 0;     // since it was made
  int64_t idle_us = 0;  // since it was made or last used
};

// Tokens that a checkpoint of a recurrent state is expected to save: `gap_tokens` is the way from the one
// before it, `distance_tokens` the way from it to the last one behind it (0: it is the last). Prompts come back
// changed near their end rather than near their beginning, so checkpoints thin out with the distance: the way
// between two grows with it. Ends of messages are where prompts part: for them the distance counts as 0.
double checkpoint_tokens_saved(int64_t gap_tokens, int64_t distance_tokens);

// `prefill_us_per_token`: measured; where nothing was measured yet any positive number orders alike.
double seconds_saved_per_byte(const CachedPiece& piece, double prefill_us_per_token);

}  // namespace tandem::policies
