// Element types of weights and the sizes of their blocks (GGUF names). Pure values, any thread.
// A row of a weight is `width` consecutive elements, stored as width / block_elems blocks; a width that
// is not a multiple of the block is refused when the file is read, so here it is a bug of ours.
#pragma once

#include <cstdint>
#include <optional>

namespace tandem::kernels {

enum class DType : std::uint8_t { f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k };
inline constexpr int kDTypeCount = 11;

// Elements of one block (1 for float types).
constexpr std::int64_t block_elems(DType type) noexcept {
  switch (type) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      return 1;
    case DType::q8_0:
    case DType::q4_0:
    case DType::q4_1:
    case DType::q5_0:
    case DType::q5_1:
      return 32;
    case DType::q4_k:
    case DType::q5_k:
    case DType::q6_k:
      return 256;
  }
  return 1;
}

constexpr std::int64_t block_bytes(DType type) noexcept {
  switch (type) {
    case DType::f32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::q8_0:
      return 34;
    case DType::q4_0:
      return 18;
    case DType::q4_1:
      return 20;
    case DType::q5_0:
      return 22;
    case DType::q5_1:
      return 24;
    case DType::q4_k:
      return 144;
    case DType::q5_k:
      return 176;
    case DType::q6_k:
      return 210;
  }
  return 1;
}

// Bytes of a row of `width` elements; width must be a multiple of block_elems(type).
constexpr std::int64_t row_bytes(DType type, std::int64_t width) noexcept {
  return width / block_elems(type) * block_bytes(type);
}

// True for types whose products use 8-bit activations; false for f32, f16 and bf16.
constexpr bool is_quantised(DType type) noexcept { return block_elems(type) > 1; }

const char* dtype_name(DType type) noexcept;  // "q4_k"

// The type with this GGUF id (0 = F32, 12 = Q4_K, ...), or nothing when the engine has no kernel for it.
std::optional<DType> dtype_from_gguf(std::uint32_t id) noexcept;

// A weight matrix inside the mapped file: y = W x with W[rows][width], each row contiguous.
// The view does not own the bytes; they need no alignment beyond 2.
struct WeightView {
  DType type = DType::f32;
  const void* data = nullptr;
  std::int64_t rows = 0;   // outputs
  std::int64_t width = 0;  // inputs
};

constexpr std::int64_t weight_bytes(const WeightView& weight) noexcept {
  return weight.rows * row_bytes(weight.type, weight.width);
}

}  // namespace tandem::kernels
