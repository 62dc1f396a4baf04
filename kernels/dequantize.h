// Weights to f32, exactly as the formats define them (reference: GGUF block formats). Scalar: used for
// embedding rows, small tensors and as the reference of the products. Any thread.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace tandem::kernels {

// Writes `width` floats. row points at the first block; width is a multiple of block_elems(type).
void dequantize_row(DType type, const void* row, std::int64_t width, float* out);

}  // namespace tandem::kernels
