// The level without special instructions. Its products decode one weight row at a time into plain 8-bit
// codes and run every token over it: simple, and within a small factor of what SSE2 can do.
#include "kernels/simd/fill_table.h"
#include "kernels/simd/float_matmul.h"
#include "kernels/simd/vec_portable.h"

namespace tandem::kernels {
namespace {

// One block of 32 weights: w[i] = d[i / 16] * code[i] + min.
struct DecodedBlock {
  std::int8_t code[32];
  float d[2];
  float min;
};

float load_half(const std::uint8_t* bytes) { return f16_to_f32(static_cast<std::uint16_t>(bytes[0] | bytes[1] << 8)); }

void decode_q8_0(const std::uint8_t* block, DecodedBlock& out) {
  out.d[0] = out.d[1] = load_half(block);
  out.min = 0.0F;
  __builtin_memcpy(out.code, block + 2, 32);
}

// Nibbles split low/high with an optional fifth bit; offset is subtracted from each code.
void decode_nibbles(const std::uint8_t* codes, std::uint32_t high, int offset, DecodedBlock& out) {
  for (int i = 0; i < 16; ++i) {
    const int low_bit = static_cast<int>(high >> i & 1U) << 4;
    const int high_bit = static_cast<int>(high >> (i + 16) & 1U) << 4;
    out.code[i] = static_cast<std::int8_t>(((codes[i] & 15) | low_bit) - offset);
    out.code[i + 16] = static_cast<std::int8_t>((codes[i] >> 4 | high_bit) - offset);
  }
}

template <bool kMin, bool kFifthBit>
void decode_legacy(const std::uint8_t* block, DecodedBlock& out) {
  out.d[0] = out.d[1] = load_half(block);
  out.min = kMin ? load_half(block + 2) : 0.0F;
  const std::uint8_t* rest = block + (kMin ? 4 : 2);
  std::uint32_t high = 0;
  if (kFifthBit) {
    high = static_cast<std::uint32_t>(rest[0]) | static_cast<std::uint32_t>(rest[1]) << 8 |
           static_cast<std::uint32_t>(rest[2]) << 16 | static_cast<std::uint32_t>(rest[3]) << 24;
  }
  decode_nibbles(rest + (kFifthBit ? 4 : 0), high, kMin ? 0 : (kFifthBit ? 16 : 8), out);
}

template <bool kFifthBit>
void decode_k45(const std::uint8_t* super, int j, DecodedBlock& out) {
  const std::uint8_t* s = super + 4;
  const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
  const int min = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6) << 4;
  out.d[0] = out.d[1] = load_half(super) * static_cast<float>(scale);
  out.min = -load_half(super + 2) * static_cast<float>(min);
  const std::uint8_t* codes = super + (kFifthBit ? 48 : 16) + 32 * (j / 2);
  for (int i = 0; i < 32; ++i) {
    const int nibble = j % 2 == 0 ? codes[i] & 15 : codes[i] >> 4;
    const int bit = kFifthBit ? (super[16 + i] >> j & 1) << 4 : 0;
    out.code[i] = static_cast<std::int8_t>(nibble | bit);
  }
}

void decode_q6_k(const std::uint8_t* super, int j, DecodedBlock& out) {
  const int half = j / 4;
  const int group = j % 4;
  const std::uint8_t* low = super + 64 * half + 32 * (group & 1);
  const std::uint8_t* high = super + 128 + 32 * half;
  const float d = load_half(super + 208);
  out.d[0] = d * static_cast<float>(static_cast<std::int8_t>(super[192 + 2 * j]));
  out.d[1] = d * static_cast<float>(static_cast<std::int8_t>(super[193 + 2 * j]));
  out.min = 0.0F;
  for (int i = 0; i < 32; ++i) {
    const int nibble = group < 2 ? low[i] & 15 : low[i] >> 4;
    out.code[i] = static_cast<std::int8_t>((nibble | (high[i] >> (2 * group) & 3) << 4) - 32);
  }
}

// Block number b of 32 weights of a row.
void decode_block(DType type, const std::uint8_t* row, std::int64_t b, DecodedBlock& out) {
  switch (type) {
    case DType::q8_0:
      return decode_q8_0(row + b * 34, out);
    case DType::q4_0:
      return decode_legacy<false, false>(row + b * 18, out);
    case DType::q4_1:
      return decode_legacy<true, false>(row + b * 20, out);
    case DType::q5_0:
      return decode_legacy<false, true>(row + b * 22, out);
    case DType::q5_1:
      return decode_legacy<true, true>(row + b * 24, out);
    case DType::q4_k:
      return decode_k45<false>(row + b / 8 * 144, static_cast<int>(b % 8), out);
    case DType::q5_k:
      return decode_k45<true>(row + b / 8 * 176, static_cast<int>(b % 8), out);
    case DType::q6_k:
      return decode_q6_k(row + b / 8 * 210, static_cast<int>(b % 8), out);
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      return;
  }
}

float dot_row(const DecodedBlock* row, const ActBlock* x, std::int64_t blocks) {
  float acc = 0.0F;
  for (std::int64_t b = 0; b < blocks; ++b) {
    std::int32_t low = 0;
    std::int32_t high = 0;
    for (int i = 0; i < 16; ++i) {
      low += row[b].code[i] * x[b].q[i];
      high += row[b].code[i + 16] * x[b].q[i + 16];
    }
    const float scaled = static_cast<float>(low) * row[b].d[0] + static_cast<float>(high) * row[b].d[1];
    acc += scaled * x[b].d + row[b].min * x[b].d_sum;
  }
  return acc;
}

void matmul_rows(const MatmulTask& task) {
  if (block_elems(task.type) == 1) {
    FloatMatmul<VecPortable>::rows(task);
    return;
  }
  const std::int64_t blocks = task.width / 32;
  auto* decoded = reinterpret_cast<DecodedBlock*>(task.scratch);
  for (std::int64_t o = task.row_begin; o < task.row_end; ++o) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      decode_block(task.type, task.weight + o * task.row_bytes, b, decoded[b]);
    }
    for (std::int64_t t = 0; t < task.tokens; ++t) {
      const float dot = dot_row(decoded, task.blocks + t * blocks, blocks);
      float* y = task.y + t * task.y_stride + o;
      const float value = task.bias == nullptr ? dot : dot + task.bias[o];
      *y = task.accumulate ? *y + value : value;
    }
  }
}

void quantise_row(const float* x, std::int64_t width, ActBlock* out) {
  for (std::int64_t begin = 0; begin < width; begin += 32, ++out) {
    const std::int64_t count = width - begin < 32 ? width - begin : 32;
    float max = 0.0F;
    for (std::int64_t i = 0; i < count; ++i) {
      const float magnitude = __builtin_fabsf(x[begin + i]);
      max = magnitude > max ? magnitude : max;
    }
    const float inverse = max > 1e-30F ? 127.0F / max : 0.0F;
    std::int32_t sum = 0;
    std::int32_t sum_lo = 0;
    for (std::int64_t i = 0; i < 32; ++i) {
      // Adding 1.5 * 2^23 rounds to the nearest even integer, as the vector levels do.
      const float scaled = i < count ? x[begin + i] * inverse : 0.0F;
      const auto q = static_cast<std::int32_t>((scaled + 12582912.0F) - 12582912.0F);
      out->q[i] = static_cast<std::int8_t>(q);
      sum += q;
      sum_lo += i < 16 ? q : 0;
    }
    out->d = max / 127.0F;
    out->d_sum = out->d * static_cast<float>(sum);
    out->n128 = -128 * sum;
    out->n128_lo = -128 * sum_lo;
  }
}

constexpr KernelTable kTable = make_table<VecPortable>(quantise_row, matmul_rows);

}  // namespace

const KernelTable& kernel_table_portable() noexcept { return kTable; }

}  // namespace tandem::kernels
