// From a task's type to the level's QuantMatmul or FloatMatmul.
#pragma once

#include "kernels/simd/float_matmul.h"
#include "kernels/simd/table.h"

namespace tandem::kernels {
namespace {

template <typename V, template <DType> typename Quant>
void dispatch_matmul(const MatmulTask& task) {
  switch (task.type) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      return FloatMatmul<V>::rows(task);
    case DType::q8_0:
      return Quant<DType::q8_0>::rows(task);
    case DType::q4_0:
      return Quant<DType::q4_0>::rows(task);
    case DType::q4_1:
      return Quant<DType::q4_1>::rows(task);
    case DType::q5_0:
      return Quant<DType::q5_0>::rows(task);
    case DType::q5_1:
      return Quant<DType::q5_1>::rows(task);
    case DType::q4_k:
      return Quant<DType::q4_k>::rows(task);
    case DType::q5_k:
      return Quant<DType::q5_k>::rows(task);
    case DType::q6_k:
      return Quant<DType::q6_k>::rows(task);
  }
}

}  // namespace
}  // namespace tandem::kernels
