#include "kernels/dequantize.h"

#include <cstring>

#include "base/check.h"
#include "kernels/half.h"

namespace tandem::kernels {
namespace {

std::uint16_t load_u16(const std::uint8_t* bytes) noexcept {
  return static_cast<std::uint16_t>(bytes[0] | bytes[1] << 8);
}

float load_half(const std::uint8_t* bytes) noexcept { return f16_to_f32(load_u16(bytes)); }

std::uint32_t load_u32(const std::uint8_t* bytes) noexcept {
  return static_cast<std::uint32_t>(load_u16(bytes)) | static_cast<std::uint32_t>(load_u16(bytes + 2)) << 16;
}

void q8_0_block(const std::uint8_t* block, float* out) {
  const float d = load_half(block);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
  }
}

// Q4_0, Q4_1, Q5_0, Q5_1: nibbles split low/high, an optional fifth bit, then either an offset or a minimum.
struct NibbleLayout {
  bool has_min;
  bool has_fifth_bit;
};

void nibble_block(const std::uint8_t* block, NibbleLayout layout, float* out) {
  const float d = load_half(block);
  const float min = layout.has_min ? load_half(block + 2) : 0.0F;
  const std::uint8_t* rest = block + (layout.has_min ? 4 : 2);
  const std::uint32_t high = layout.has_fifth_bit ? load_u32(rest) : 0;
  const std::uint8_t* codes = rest + (layout.has_fifth_bit ? 4 : 0);
  const int offset = layout.has_min ? 0 : (layout.has_fifth_bit ? 16 : 8);
  for (int i = 0; i < 32; ++i) {
    const int nibble = i < 16 ? codes[i] & 15 : codes[i - 16] >> 4;
    const int code = nibble | static_cast<int>(high >> i & 1U) << 4;
    out[i] = d * static_cast<float>(code - offset) + min;
  }
}

struct ScaleAndMin {
  int scale;
  int min;
};

ScaleAndMin k_scale(const std::uint8_t* s, int j) noexcept {
  if (j < 4) {
    return {s[j] & 63, s[j + 4] & 63};
  }
  return {(s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4};
}

void k45_block(const std::uint8_t* block, bool has_fifth_bit, float* out) {
  const float d = load_half(block);
  const float dmin = load_half(block + 2);
  const std::uint8_t* scales = block + 4;
  const std::uint8_t* high = block + 16;
  const std::uint8_t* codes = block + (has_fifth_bit ? 48 : 16);
  for (int j = 0; j < 8; ++j) {
    const ScaleAndMin sm = k_scale(scales, j);
    for (int l = 0; l < 32; ++l) {
      const int byte = codes[32 * (j / 2) + l];
      const int nibble = j % 2 == 0 ? byte & 15 : byte >> 4;
      const int code = nibble + (has_fifth_bit ? (high[l] >> j & 1) * 16 : 0);
      out[32 * j + l] = d * static_cast<float>(sm.scale) * static_cast<float>(code) -
                        dmin * static_cast<float>(sm.min);
    }
  }
}

void q6_k_block(const std::uint8_t* block, float* out) {
  const std::uint8_t* low = block;
  const std::uint8_t* high = block + 128;
  const std::uint8_t* scales = block + 192;
  const float d = load_half(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int group = i / 32 % 4;
    const int l = i % 32;
    const int byte = low[64 * half + l + 32 * (group & 1)];
    const int nibble = group < 2 ? byte & 15 : byte >> 4;
    const int code = (nibble | (high[32 * half + l] >> (2 * group) & 3) << 4) - 32;
    out[i] = d * static_cast<float>(static_cast<std::int8_t>(scales[i / 16])) * static_cast<float>(code);
  }
}

void block_to_f32(DType type, const std::uint8_t* block, float* out) {
  switch (type) {
    case DType::f32:
      std::memcpy(out, block, sizeof(float));
      return;
    case DType::f16:
      out[0] = load_half(block);
      return;
    case DType::bf16:
      out[0] = bf16_to_f32(load_u16(block));
      return;
    case DType::q8_0:
      return q8_0_block(block, out);
    case DType::q4_0:
      return nibble_block(block, {.has_min = false, .has_fifth_bit = false}, out);
    case DType::q4_1:
      return nibble_block(block, {.has_min = true, .has_fifth_bit = false}, out);
    case DType::q5_0:
      return nibble_block(block, {.has_min = false, .has_fifth_bit = true}, out);
    case DType::q5_1:
      return nibble_block(block, {.has_min = true, .has_fifth_bit = true}, out);
    case DType::q4_k:
      return k45_block(block, false, out);
    case DType::q5_k:
      return k45_block(block, true, out);
    case DType::q6_k:
      return q6_k_block(block, out);
  }
}

}  // namespace

void dequantize_row(DType type, const void* row, std::int64_t width, float* out) {
  CHECK(width >= 0 && width % block_elems(type) == 0);
  const auto* block = static_cast<const std::uint8_t*>(row);
  for (std::int64_t i = 0; i < width; i += block_elems(type)) {
    block_to_f32(type, block, out + i);
    block += block_bytes(type);
  }
}

}  // namespace tandem::kernels
