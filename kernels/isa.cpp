#include "kernels/isa.h"

#include <cstdlib>
#include <string>

#include "kernels/simd/table.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace tandem::kernels {
namespace {

constexpr Isa kAll[] = {Isa::portable, Isa::avx2, Isa::avx512, Isa::neon_dot, Isa::neon_i8mm};

}  // namespace

const char* isa_name(Isa isa) noexcept {
  switch (isa) {
    case Isa::portable:
      return "portable";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::neon_dot:
      return "neon_dot";
    case Isa::neon_i8mm:
      return "neon_i8mm";
  }
  return "unknown";
}

bool isa_supported(Isa isa) noexcept {
  switch (isa) {
    case Isa::portable:
      return true;
#if defined(__x86_64__)
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case Isa::avx512:
      return isa_supported(Isa::avx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
    case Isa::neon_dot:
    case Isa::neon_i8mm:
      return false;
#elif defined(__aarch64__)
    case Isa::neon_dot:
      return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
    case Isa::neon_i8mm:
      return isa_supported(Isa::neon_dot) && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
    case Isa::avx2:
    case Isa::avx512:
      return false;
#else
    case Isa::avx2:
    case Isa::avx512:
    case Isa::neon_dot:
    case Isa::neon_i8mm:
      return false;
#endif
  }
  return false;
}

std::vector<Isa> isa_supported_all() {
  std::vector<Isa> found;
  for (const Isa isa : kAll) {
    if (isa_supported(isa)) {
      found.push_back(isa);
    }
  }
  return found;
}

Isa isa_best() noexcept {
  Isa best = Isa::portable;
  for (const Isa isa : kAll) {
    if (isa_supported(isa)) {
      best = isa;
    }
  }
  return best;
}

Result<Isa> isa_from_name(std::string_view name) {
  for (const Isa isa : kAll) {
    if (name == isa_name(isa)) {
      if (!isa_supported(isa)) {
        return make_error(Errc::invalid_argument, "instruction set " + std::string(name) + " does not run here");
      }
      return isa;
    }
  }
  return make_error(Errc::invalid_argument, "unknown instruction set " + std::string(name) +
                                                " (portable, avx2, avx512, neon_dot, neon_i8mm)");
}

Result<Isa> isa_choose() {
  const char* name = std::getenv("TANDEM_ISA");  // NOLINT(concurrency-mt-unsafe): read at start only
  if (name == nullptr || *name == '\0') {
    return isa_best();
  }
  return isa_from_name(name);
}

const KernelTable& kernel_table(Isa isa) noexcept {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::avx2:
      return kernel_table_avx2();
    case Isa::avx512:
      return kernel_table_avx512();
#elif defined(__aarch64__)
    case Isa::neon_dot:
      return kernel_table_neon_dot();
    case Isa::neon_i8mm:
      return kernel_table_neon_i8mm();
#endif
    default:
      return kernel_table_portable();
  }
}

}  // namespace tandem::kernels
