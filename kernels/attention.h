// Causal attention over a paged KV cache in f16. Called by the engine's loop only.
//
// A sequence's KV is a list of page base pointers; page p holds positions [32 p, 32 p + 32). Inside a page
// one layer owns two blocks of kv_block_bytes() each, K and V, at byte offsets that the caller chooses
// (multiples of 64; page bases aligned to 64). The layout inside a block belongs to this header:
//   K block: [kv_heads][head_dim][32 tokens] f16, so that 32 keys are one vector
//   V block: [kv_heads][32 tokens][head_dim] f16
// Unwritten positions may hold anything; they are never part of a result.
//
// A query row's output is bit-identical whatever else is in the call: keys are visited page by page in
// order of position, with one online-softmax update per page, never split.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/compute.h"

namespace tandem::kernels {

inline constexpr std::int64_t kPageTokens = 32;
inline constexpr std::int64_t kHeadDimMax = 512;

struct KvShape {
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;  // multiple of 8, at most kHeadDimMax
};

// Bytes of one layer's K block in one page, and the same for its V block. A multiple of 64.
constexpr std::size_t kv_block_bytes(const KvShape& shape) noexcept {
  return static_cast<std::size_t>(shape.kv_heads * shape.head_dim * kPageTokens) * 2;
}

// Where one row (token) of the batch lives: the page list of its sequence and its absolute position.
// Rows of one sequence should be neighbours and share the pages pointer: then they share loads.
struct KvRow {
  std::byte* const* pages = nullptr;  // entries [0, position / 32] are valid
  std::int32_t position = 0;
};

// Stores K and V of new tokens, rounded to f16 (values beyond its range become +-65504).
struct KvWrite {
  KvShape shape;
  std::size_t k_offset = 0;  // bytes from the page base to the layer's K block
  std::size_t v_offset = 0;
  std::span<const KvRow> rows;
  const float* k = nullptr;  // [rows][k_stride], kv_heads * head_dim used
  const float* v = nullptr;
  std::int64_t k_stride = 0;  // floats
  std::int64_t v_stride = 0;
};
void kv_write(Compute& compute, const KvWrite& op);

// out[row][head] = softmax(scale q . K[0..position]) V[0..position]. Query head h reads kv head
// h / (q_heads / kv_heads). The keys of the rows themselves must have been written before.
struct Attention {
  KvShape shape;
  std::int64_t q_heads = 0;  // multiple of kv_heads
  float scale = 1.0F;
  std::size_t k_offset = 0;
  std::size_t v_offset = 0;
  std::span<const KvRow> rows;
  const float* q = nullptr;  // [rows][q_token_stride], head h at h * q_head_stride
  std::int64_t q_token_stride = 0;
  std::int64_t q_head_stride = 0;
  float* out = nullptr;  // [rows][out_stride], heads contiguous; may not alias q
  std::int64_t out_stride = 0;
};
void attention(Compute& compute, const Attention& op);

}  // namespace tandem::kernels
