// Speed of the products on real shapes: GB/s of weights with one token, GMAC/s with many.
//   kernels_bench [threads] [tokens]      the level is TANDEM_ISA or the best one
// Each weight set is larger than the last-level cache's share so that one token reads memory.
#include <time.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/matmul.h"

namespace tandem::kernels {
namespace {

struct Shape {
  DType type;
  std::int64_t rows;
  std::int64_t width;
};

constexpr Shape kShapes[] = {
    {DType::q4_1, 576, 576},      {DType::q4_1, 1536, 576},   {DType::q4_1, 576, 1536},
    {DType::q8_0, 49152, 576},    {DType::q5_0, 896, 896},    {DType::q5_0, 4864, 896},
    {DType::q8_0, 896, 896},      {DType::q6_k, 896, 4864},   {DType::q8_0, 151936, 896},
    {DType::q4_k, 896, 4864},     {DType::q4_k, 1536, 1536},  {DType::q4_k, 8960, 1536},
    {DType::q4_k, 1536, 8960},    {DType::q6_k, 1536, 8960},  {DType::q6_k, 151936, 1536},
    {DType::q8_0, 256, 256},      {DType::q8_0, 768, 256},    {DType::q4_0, 4096, 1024},
    {DType::q5_1, 4096, 1024},    {DType::q5_k, 4096, 1024},  {DType::f16, 4096, 1024},
};

// With one thread its own CPU time, so that a busy machine disturbs less; else wall time.
double seconds_now(int threads) {
  if (threads == 1) {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void bench(Compute& compute, const Shape& shape, std::int64_t tokens) {
  const std::int64_t bytes = shape.rows * row_bytes(shape.type, shape.width);
  const std::int64_t copies = tokens == 1 ? std::max<std::int64_t>(1, (300 << 20) / bytes) : 4;
  std::vector<std::uint8_t> weights(static_cast<std::size_t>(bytes * copies), 0x11);
  std::vector<float> x(static_cast<std::size_t>(tokens * shape.width), 0.25F);
  std::vector<float> y(static_cast<std::size_t>(tokens * shape.rows));
  const std::size_t storage_bytes = activation_bytes(shape.width, tokens);
  auto* storage = static_cast<std::byte*>(std::aligned_alloc(64, (storage_bytes + 63) / 64 * 64));
  CHECK(storage != nullptr);
  const Activations in = quantise_activations(
      compute, {.data = x.data(), .stride = shape.width, .tokens = tokens, .width = shape.width},
      {storage, storage_bytes});
  double best = 1e9;
  double total = 0.0;
  std::int64_t copy = 0;
  for (int round = 0; round < 1000 && (round < 5 || total < 0.4); ++round) {
    const int calls = tokens == 1 ? static_cast<int>(std::max<std::int64_t>(1, (20 << 20) / bytes)) : 1;
    const double start = seconds_now(compute.threads());
    for (int call = 0; call < calls; ++call) {
      const WeightView weight{.type = shape.type,
                              .data = weights.data() + copy * bytes,
                              .rows = shape.rows,
                              .width = shape.width};
      matmul(compute, in, matmul_all_rows(weight, y.data(), shape.rows));
      copy = (copy + 1) % copies;
    }
    const double elapsed = seconds_now(compute.threads()) - start;
    total += elapsed;
    best = std::min(best, elapsed / calls);
  }
  std::free(storage);
  const double macs = static_cast<double>(shape.rows * shape.width * tokens);
  std::printf("%-5s %6lld x %5lld  tokens %4lld  %9.1f us  %7.2f GB/s  %8.1f GMAC/s\n", dtype_name(shape.type),
              static_cast<long long>(shape.rows), static_cast<long long>(shape.width),
              static_cast<long long>(tokens), best * 1e6, static_cast<double>(bytes) / best * 1e-9,
              macs / best * 1e-9);
}

int run(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const std::int64_t tokens = argc > 2 ? std::atoll(argv[2]) : 1;
  const Result<Isa> isa = isa_choose();
  if (!isa.ok()) {
    std::fprintf(stderr, "%s\n", isa.error().message.c_str());
    return 2;
  }
  Compute compute({.threads = threads, .isa = *isa, .scratch_bytes_per_thread = matmul_scratch_bytes(8960)});
  std::printf("%s, %d threads\n", isa_name(*isa), threads);
  for (const Shape& shape : kShapes) {
    bench(compute, shape, tokens);
  }
  return 0;
}

}  // namespace
}  // namespace tandem::kernels

int main(int argc, char** argv) { return tandem::kernels::run(argc, argv); }
