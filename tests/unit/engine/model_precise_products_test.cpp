// The two-level activations of the products that feed attention: nearer to the exact product where
// a row has outliers, and bit-identical per row whatever the neighbours.
#include <cmath>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/dequantize.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"
#include "tests/support/catch.h"

namespace tandem::kernels {
namespace {


constexpr int64_t kRows = 37;    // outputs
constexpr int64_t kWidth = 512;
constexpr int64_t kTokens = 19;

struct Weight {
  std::vector<uint8_t> bytes;
  WeightView view;
};

// Random codes under a scale of 0.01 in every block.
Weight make_weight(DType type, std::mt19937& random) {
  Weight weight;
  weight.bytes.resize(static_cast<size_t>(kRows * row_bytes(type, kWidth)));
  for (uint8_t& byte : weight.bytes) byte = static_cast<uint8_t>(random());
  constexpr uint8_t kScale[2] = {0x1F, 0x21};
  const auto block = static_cast<size_t>(block_bytes(type));
  for (size_t at = 0; at < weight.bytes.size(); at += block) {
    const size_t scale = type == DType::q6_k ? at + block - 2 : at;
    for (size_t i = 0; i < 2; ++i) weight.bytes[scale + i] = kScale[i];
    if (type == DType::q4_k || type == DType::q4_1) {  // the minimum scale
      for (size_t i = 0; i < 2; ++i) weight.bytes[at + 2 + i] = kScale[i];
    }
  }
  weight.view = {.type = type, .data = weight.bytes.data(), .rows = kRows, .width = kWidth};
  return weight;
}

// Even rows have huge values in channels 70 and 300, as the inputs of attention layers do.
std::vector<float> make_inputs(std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(kTokens * kWidth);
  for (float& value : x) value = normal(random);
  for (int64_t t = 0; t < kTokens; t += 2) {
    x[static_cast<size_t>(t * kWidth + 70)] = 60.0F;
    x[static_cast<size_t>(t * kWidth + 300)] = -45.0F;
  }
  return x;
}

// Storage for activations, aligned as they ask.
class Storage {
 public:
  explicit Storage(size_t bytes) : memory_(bytes + 64), bytes_(bytes) {}
  [[nodiscard]] std::span<std::byte> span() {
    void* at = memory_.data();
    size_t space = memory_.size();
    return {static_cast<std::byte*>(std::align(64, bytes_, at, space)), bytes_};
  }

 private:
  std::vector<std::byte> memory_;
  size_t bytes_;
};

std::vector<float> product(Compute& compute, const Activations& x, const WeightView& weight) {
  std::vector<float> y(static_cast<size_t>(x.tokens * kRows));
  matmul(compute, x, matmul_all_rows(weight, y.data(), kRows));
  return y;
}

double error_of(const std::vector<float>& y, const std::vector<float>& x, const WeightView& weight,
                int64_t token) {
  double difference = 0;
  std::vector<float> row(kWidth);
  for (int64_t o = 0; o < kRows; ++o) {
    const auto* bytes = static_cast<const uint8_t*>(weight.data);
    dequantize_row(weight.type, bytes + o * row_bytes(weight.type, kWidth), kWidth, row.data());
    double exact = 0;
    for (int64_t i = 0; i < kWidth; ++i) {
      exact += static_cast<double>(row[static_cast<size_t>(i)]) *
               static_cast<double>(x[static_cast<size_t>(token * kWidth + i)]);
    }
    const double delta = static_cast<double>(y[static_cast<size_t>(token * kRows + o)]) - exact;
    difference += delta * delta;
  }
  return std::sqrt(difference);
}

void check_type(DType type, Isa isa) {
  INFO(dtype_name(type) << " " << isa_name(isa));
  std::mt19937 random(11);
  const Weight weight = make_weight(type, random);
  const std::vector<float> x = make_inputs(random);
  Compute compute(
      {.threads = 2, .isa = isa, .scratch_bytes_per_thread = matmul_scratch_bytes(kWidth)});
  const RowsView rows = {.data = x.data(), .stride = kWidth, .tokens = kTokens, .width = kWidth};
  const int64_t group = block_elems(type);
  Storage plain_storage(activation_bytes(kWidth, kTokens));
  Storage storage(precise_activation_bytes(kWidth, kTokens));
  const auto plain =
      product(compute, quantise_activations(compute, rows, plain_storage.span()), weight.view);
  const auto precise =
      product(compute, precise_activations(compute, rows, group, storage.span()), weight.view);
  double plain_error = 0;
  double precise_error = 0;
  for (int64_t t = 0; t < kTokens; ++t) {
    const auto begin = static_cast<std::ptrdiff_t>(t * kRows);
    // Rows without outliers are the plain product to the bit; rows alone are what they were before.
    if (t % 2 == 1) {
      CHECK(std::equal(plain.begin() + begin, plain.begin() + begin + kRows,
                       precise.begin() + begin));
    } else {
      plain_error += error_of(plain, x, weight.view, t);
      precise_error += error_of(precise, x, weight.view, t);
    }
    const RowsView one = {
        .data = x.data() + t * kWidth, .stride = kWidth, .tokens = 1, .width = kWidth};
    const auto alone =
        product(compute, precise_activations(compute, one, group, storage.span()), weight.view);
    CHECK(std::equal(alone.begin(), alone.end(), precise.begin() + begin));
  }
  // The two outlier blocks make nearly all of the plain error; what is left is that of the others.
  CHECK(precise_error < 0.25 * plain_error);
}

TEST_CASE("precise activations: outliers keep their neighbours' precision, rows their bits") {
  for (const Isa isa : isa_supported_all()) {
    for (const DType type : {DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0, DType::q4_k,
                             DType::q6_k}) {
      check_type(type, isa);
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
