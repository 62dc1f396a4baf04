#include "engine/run/batch.h"

#include <algorithm>

#include "base/check.h"

namespace tandem::engine {
namespace {

struct Room {
  int64_t rows = 0;
  int64_t logit_rows = 0;
  int64_t items = 0;
};

bool is_decode(const BatchCandidate& c) { return c.tokens - c.computed == 1; }

bool is_scored(const BatchCandidate& c) { return c.scored_until > c.computed; }

int64_t logit_rows_of(const BatchCandidate& c, int64_t end) {
  if (end == c.computed) return 0;
  if (is_scored(c)) return end - c.computed;
  return end == c.tokens ? 1 : 0;
}

// Adds the next block to the piece that now ends at `end`; false when nothing could be added.
bool extend(const BatchCandidate& c, const BatchLimits& limits, int64_t& end, Room& room) {
  const int64_t chunk = is_scored(c) ? limits.scored_chunk_tokens : limits.chunk_tokens;
  const int64_t last = c.stop_at > 0 ? std::min(c.stop_at, c.tokens) : c.tokens;
  const int64_t next = std::min(chunk_end(end, chunk), last);
  const bool starts = end == c.computed;
  if (end == last || (next == c.tokens && !c.may_sample)) return false;
  const int64_t rows = next - end;
  const int64_t logit_rows = logit_rows_of(c, next) - logit_rows_of(c, end);
  if (rows > room.rows || logit_rows > room.logit_rows || (starts && room.items == 0)) return false;
  room.rows -= rows;
  room.logit_rows -= logit_rows;
  room.items -= starts ? 1 : 0;
  end = next;
  return true;
}

LogitsFor logits_of(const BatchCandidate& c, int64_t end) {
  if (is_scored(c)) return LogitsFor::all;
  return end == c.tokens ? LogitsFor::last : LogitsFor::none;
}

}  // namespace

std::vector<BatchPiece> choose_batch(std::span<const BatchCandidate> candidates,
                                     const BatchLimits& limits, size_t first_prefill) {
  CHECK(limits.chunk_tokens > 0);
  Room room{limits.rows_max, limits.logit_rows_max, limits.items_max};
  std::vector<int64_t> ends(candidates.size());
  std::vector<size_t> prefills;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const BatchCandidate& c = candidates[i];
    CHECK(c.computed < c.tokens);
    ends[i] = c.computed;
    if (is_decode(c)) extend(c, limits, ends[i], room);
  }
  for (size_t n = 0; n < candidates.size(); ++n) {
    const size_t i = (first_prefill + n) % candidates.size();
    if (!is_decode(candidates[i])) prefills.push_back(i);
  }
  Room prefill_room = room;
  prefill_room.rows = std::min(room.rows, std::max(limits.prefill_rows_max, limits.chunk_tokens));
  bool progress = !prefills.empty();
  while (progress) {
    progress = false;
    for (const size_t i : prefills) {
      if (extend(candidates[i], limits, ends[i], prefill_room)) progress = true;
    }
  }
  std::vector<BatchPiece> pieces;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (ends[i] == candidates[i].computed) continue;
    pieces.push_back({i, ends[i] - candidates[i].computed, logits_of(candidates[i], ends[i])});
  }
  return pieces;
}

}  // namespace tandem::engine
