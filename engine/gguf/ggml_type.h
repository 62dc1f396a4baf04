// The tensor types a GGUF file can name, with their block sizes (models.md section 2 gives the
// layouts; ids are the file format's). The reader knows more types than the kernels compute, so that
// planners can size any file. Pure; any thread.
#pragma once

#include <cstdint>

namespace tandem::engine {

enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
  kQ2_0 = 42,
};

struct GgmlTypeInfo {
  GgmlType type;
  const char* name;         // "Q4_K"
  uint32_t block_elements;  // 1 for plain types
  uint32_t block_bytes;
};

// Null when the id is unknown or was removed from the format.
const GgmlTypeInfo* find_ggml_type(uint32_t id);
// For a type that came out of a parsed file: always known.
const GgmlTypeInfo& ggml_type_info(GgmlType type);

}  // namespace tandem::engine
