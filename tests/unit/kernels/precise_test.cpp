// The two-level activations: what they gain, and that a row without outliers never notices its neighbours.
#include <cmath>
#include <cstdlib>
#include <memory>

#include "kernels/matmul.h"
#include "tests/unit/kernels/reference.h"
// After the product's headers: both define CHECK, and the test means Catch2's.
#include "tests/support/catch.h"

namespace tandem::kernels {
namespace {

using reference::Random;
using reference::same_bits;
using reference::Weight;

constexpr std::int64_t kWidth = 512;
constexpr std::int64_t kRows = 40;
constexpr std::int64_t kTokens = 9;

struct Storage {
  explicit Storage(std::size_t bytes)
      : data(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 64) / 64 * 64)), std::free), size(bytes) {}
  std::unique_ptr<std::byte, void (*)(void*)> data;
  std::size_t size;
};

// Every third token has two huge channels, in different groups of columns.
std::vector<float> activations_with_outliers() {
  Random random(31);
  std::vector<float> x = random.normals(kTokens * kWidth);
  for (std::int64_t t = 0; t < kTokens; t += 3) {
    x[static_cast<std::size_t>(t * kWidth + 40)] = 300.0F;
    x[static_cast<std::size_t>(t * kWidth + 300)] = -150.0F;
  }
  return x;
}

std::vector<float> product(Compute& compute, const Weight& weight, const float* x, std::int64_t tokens, bool precise) {
  const RowsView rows{.data = x, .stride = kWidth, .tokens = tokens, .width = kWidth};
  Storage storage(precise_activation_bytes(kWidth, tokens));
  const std::span<std::byte> bytes(storage.data.get(), storage.size);
  const Activations in = precise ? precise_activations(compute, rows, block_elems(weight.type), bytes)
                                 : quantise_activations(compute, rows, bytes);
  std::vector<float> y(static_cast<std::size_t>(tokens * kRows));
  matmul(compute, in, matmul_all_rows(weight.view(), y.data(), kRows));
  return y;
}

// Root mean square distance to the product with unrounded activations.
double error(const Weight& weight, const std::vector<float>& x, const std::vector<float>& y) {
  double squares = 0.0;
  for (std::int64_t o = 0; o < kRows; ++o) {
    const std::vector<double> w = decode_row(weight, o);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      double wanted = 0.0;
      for (std::int64_t i = 0; i < kWidth; ++i) {
        wanted += w[static_cast<std::size_t>(i)] * static_cast<double>(x[static_cast<std::size_t>(t * kWidth + i)]);
      }
      const double difference = static_cast<double>(y[static_cast<std::size_t>(t * kRows + o)]) - wanted;
      squares += difference * difference;
    }
  }
  return std::sqrt(squares / static_cast<double>(kRows * kTokens));
}

}  // namespace

TEST_CASE("outlier blocks keep their small values, and batching changes no bit") {
  const std::vector<float> x = activations_with_outliers();
  for (const Isa isa : isa_supported_all()) {
    Compute compute({.threads = 2, .isa = isa, .scratch_bytes_per_thread = matmul_scratch_bytes(kWidth)});
    Random random(32);
    for (const DType type : {DType::q8_0, DType::q4_1, DType::q4_k, DType::q6_k}) {
      const Weight weight = random_weight(type, kRows, kWidth, random);
      INFO(isa_name(isa) << " " << dtype_name(type));
      const std::vector<float> precise = product(compute, weight, x.data(), kTokens, true);
      // 2 of 16 blocks carry nearly all of the error; what is left is that of the others.
      CHECK(error(weight, x, precise) < 0.1 * error(weight, x, product(compute, weight, x.data(), kTokens, false)));
      std::vector<float> alone;
      for (std::int64_t t = 0; t < kTokens; ++t) {
        const std::vector<float> y = product(compute, weight, x.data() + t * kWidth, 1, true);
        alone.insert(alone.end(), y.begin(), y.end());
      }
      CHECK(same_bits(alone, precise));
      // Token 1 has no outlier: it must equal the plain form.
      const std::vector<float> plain = product(compute, weight, x.data() + kWidth, 1, false);
      CHECK(same_bits(plain, {precise.begin() + kRows, precise.begin() + 2 * kRows}));
    }
  }
}

}  // namespace tandem::kernels
