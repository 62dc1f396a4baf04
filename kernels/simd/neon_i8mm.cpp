// The NEON level with the 8-bit matrix instruction.
#include "kernels/simd/fill_table.h"
#include "kernels/simd/neon_matmul.h"
#include "kernels/simd/quant_dispatch.h"
#include "kernels/simd/vec_neon.h"

namespace tandem::kernels {
namespace {

template <DType kType>
struct QuantMatmul : NeonMatmul<kType, true> {};

constexpr KernelTable kTable = make_table<VecNeon>(quantise_row, dispatch_matmul<VecNeon, QuantMatmul>);

}  // namespace

const KernelTable& kernel_table_neon_i8mm() noexcept { return kTable; }

}  // namespace tandem::kernels
