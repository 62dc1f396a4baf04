#include "kernels/dtype.h"

namespace tandem::kernels {

const char* dtype_name(DType type) noexcept {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::q8_0:
      return "q8_0";
    case DType::q4_0:
      return "q4_0";
    case DType::q4_1:
      return "q4_1";
    case DType::q5_0:
      return "q5_0";
    case DType::q5_1:
      return "q5_1";
    case DType::q4_k:
      return "q4_k";
    case DType::q5_k:
      return "q5_k";
    case DType::q6_k:
      return "q6_k";
  }
  return "unknown";
}

std::optional<DType> dtype_from_gguf(std::uint32_t id) noexcept {
  switch (id) {
    case 0:
      return DType::f32;
    case 1:
      return DType::f16;
    case 2:
      return DType::q4_0;
    case 3:
      return DType::q4_1;
    case 6:
      return DType::q5_0;
    case 7:
      return DType::q5_1;
    case 8:
      return DType::q8_0;
    case 12:
      return DType::q4_k;
    case 13:
      return DType::q5_k;
    case 14:
      return DType::q6_k;
    case 30:
      return DType::bf16;
    default:
      return std::nullopt;
  }
}

}  // namespace tandem::kernels
