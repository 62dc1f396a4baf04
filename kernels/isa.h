// Instruction set levels and which of them this machine and this build can run. Pure but for isa_choose,
// which reads the environment. Results of one level are bit-identical for any batch, slice or number of
// threads; between levels they differ by rounding.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::kernels {

enum class Isa {
  portable,   // plain C++, x86-64-v1 or armv8-a
  avx2,       // AVX2, FMA, F16C
  avx512,     // AVX-512 F, BW, DQ, VL and VNNI
  neon_dot,   // armv8.2-a dot product
  neon_i8mm,  // dot product and 8-bit matrix multiply
};

const char* isa_name(Isa isa) noexcept;  // "avx512"

// True when this build has kernels of the level and the CPU (and the OS) can run them.
bool isa_supported(Isa isa) noexcept;

Isa isa_best() noexcept;

// Every level that runs here, portable first. For tests.
std::vector<Isa> isa_supported_all();

// The level named by TANDEM_ISA, or the best one when the variable is unset or empty.
// invalid_argument when the name is unknown or the machine cannot run it.
Result<Isa> isa_choose();

Result<Isa> isa_from_name(std::string_view name);

}  // namespace tandem::kernels
