// Every level's products against the double reference, and the promise that a token's result does not
// depend on what else is in the call.
#include "kernels/matmul.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "kernels/dequantize.h"
#include "kernels/simd/table.h"
#include "tests/support/catch.h"
#include "tests/unit/kernels/reference.h"

namespace tandem::kernels {
namespace {

using reference::compare;
using reference::Random;
using reference::same_bits;
using reference::Weight;

constexpr DType kAllTypes[] = {DType::f32,  DType::f16,  DType::bf16, DType::q8_0, DType::q4_0, DType::q4_1,
                               DType::q5_0, DType::q5_1, DType::q4_k, DType::q5_k, DType::q6_k};

// Storage aligned as the engine's workspace is.
class Blocks {
 public:
  explicit Blocks(std::size_t bytes)
      : data_(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 64) / 64 * 64)), std::free),
        bytes_(bytes) {}
  std::span<std::byte> span() { return {data_.get(), bytes_}; }

 private:
  std::unique_ptr<std::byte[], void (*)(void*)> data_;
  std::size_t bytes_;
};

struct Case {
  Weight weight;
  std::vector<float> x;  // [tokens][width]
  std::vector<float> bias;
  std::int64_t tokens = 0;
};

Case make_case(DType type, std::int64_t rows, std::int64_t width, std::int64_t tokens, std::uint64_t seed) {
  Random random(seed);
  Case c{.weight = random_weight(type, rows, width, random),
         .x = random.normals(tokens * width),
         .bias = random.normals(rows),
         .tokens = tokens};
  c.x[0] = 40.0F;  // an outlier, as real activations have
  return c;
}

// Tokens [first, first + count) of the case, rows [begin, end) computed, everything else left at `fill`.
struct Part {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

std::vector<float> run(Compute& compute, const Case& c, const Part& part, bool accumulate = false) {
  const RowsView rows{.data = c.x.data() + part.first * c.weight.width,
                      .stride = c.weight.width,
                      .tokens = part.count,
                      .width = c.weight.width};
  Blocks storage(activation_bytes(c.weight.width, part.count));
  const Activations x = is_quantised(c.weight.type) ? quantise_activations(compute, rows, storage.span())
                                                    : exact_activations(rows);
  std::vector<float> y(static_cast<std::size_t>(part.count * c.weight.rows), 0.5F);
  MatmulOutput out = matmul_all_rows(c.weight.view(), y.data(), c.weight.rows, c.bias.data(), accumulate);
  out.row_begin = part.begin;
  out.row_end = part.end;
  matmul(compute, x, out);
  return y;
}

Part whole(const Case& c) { return {.first = 0, .count = c.tokens, .begin = 0, .end = c.weight.rows}; }

// The activations a product sees: rounded to 8 bits by the level's own quantiser, or exact.
std::vector<double> seen_activations(Compute& compute, const Case& c) {
  std::vector<double> seen(c.x.begin(), c.x.end());
  if (is_quantised(c.weight.type)) {
    std::vector<ActBlock> blocks(static_cast<std::size_t>(c.weight.width / 32));
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      compute.table().quantise_row(c.x.data() + t * c.weight.width, c.weight.width, blocks.data());
      for (std::int64_t i = 0; i < c.weight.width; ++i) {
        const ActBlock& block = blocks[static_cast<std::size_t>(i / 32)];
        seen[static_cast<std::size_t>(t * c.weight.width + i)] =
            static_cast<double>(block.d) * static_cast<double>(block.q[i % 32]);
      }
    }
  }
  return seen;
}

// The error of a sum of n terms in f32 is at most n * epsilon * sum |terms|; blocks with a minimum split
// a term in two parts that may be larger than it, bounded by |d code| + |min|.
reference::Comparison check(Compute& compute, const Case& c, const std::vector<float>& y) {
  const std::vector<double> x = seen_activations(compute, c);
  const std::int64_t width = c.weight.width;
  const bool quantised = is_quantised(c.weight.type);
  const double steps = quantised ? static_cast<double>(width) / 16.0 + 4.0 : static_cast<double>(width) / 4.0 + 8.0;
  std::vector<double> wanted(y.size());
  std::vector<double> tolerance(y.size());
  for (std::int64_t o = 0; o < c.weight.rows; ++o) {
    const std::vector<double> w = decode_row(c.weight, o);
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      double sum = static_cast<double>(c.bias[static_cast<std::size_t>(o)]);
      double magnitude = std::fabs(sum);
      for (std::int64_t i = 0; i < width; ++i) {
        const double term = w[static_cast<std::size_t>(i)] * x[static_cast<std::size_t>(t * width + i)];
        sum += term;
        magnitude += std::fabs(term);
      }
      const auto at = static_cast<std::size_t>(t * c.weight.rows + o);
      wanted[at] = sum;
      tolerance[at] = steps * reference::kEpsilon * magnitude;
    }
  }
  return compare(y, wanted, tolerance);
}

Compute make_compute(Isa isa, int threads) {
  return Compute({.threads = threads, .isa = isa, .scratch_bytes_per_thread = matmul_scratch_bytes(2048)});
}

// Rows x width x tokens: one row, odd, a panel, just above one; widths with an odd number of blocks.
struct Shape {
  std::int64_t rows;
  std::int64_t blocks;
  std::int64_t tokens;
};
constexpr Shape kShapes[] = {{1, 1, 1},  {3, 3, 2},   {16, 2, 1}, {17, 5, 3},  {33, 4, 8},
                             {64, 7, 9}, {31, 1, 17}, {48, 3, 1}, {100, 2, 70}};

std::int64_t width_of(DType type, std::int64_t blocks) {
  return type == DType::f32 || type == DType::f16 || type == DType::bf16 ? blocks * 32 + 5
                                                                        : blocks * block_elems(type);
}

}  // namespace

TEST_CASE("every level multiplies every type as the reference does") {
  for (const Isa isa : isa_supported_all()) {
    Compute compute = make_compute(isa, 2);
    for (const DType type : kAllTypes) {
      for (const Shape& shape : kShapes) {
        const Case c = make_case(type, shape.rows, width_of(type, shape.blocks), shape.tokens, 7);
        const reference::Comparison found = check(compute, c, run(compute, c, whole(c)));
        INFO(isa_name(isa) << " " << dtype_name(type) << " " << shape.rows << "x" << c.weight.width << " tokens "
                           << shape.tokens << ": " << found.text());
        CHECK(found.ok());
      }
    }
  }
}

TEST_CASE("every token count from 1 to 70 gives each token the bits it gets alone") {
  for (const Isa isa : isa_supported_all()) {
    Compute compute = make_compute(isa, 2);
    for (const DType type : kAllTypes) {
      const Case c = make_case(type, 50, width_of(type, 3), 70, 11);
      const std::vector<float> all = run(compute, c, whole(c));
      for (std::int64_t tokens = 1; tokens <= 70; tokens += tokens < 20 ? 1 : 13) {
        std::vector<float> pieces;
        for (std::int64_t first = 0; first < c.tokens; first += tokens) {
          const std::int64_t count = std::min(tokens, c.tokens - first);
          const std::vector<float> y = run(compute, c, {.first = first, .count = count, .begin = 0, .end = 50});
          pieces.insert(pieces.end(), y.begin(), y.end());
        }
        INFO(isa_name(isa) << " " << dtype_name(type) << " tokens " << tokens);
        CHECK(same_bits(pieces, all));
      }
    }
  }
}

TEST_CASE("row slices and threads change no bit, and leave other rows alone") {
  for (const Isa isa : isa_supported_all()) {
    Compute one = make_compute(isa, 1);
    Compute three = make_compute(isa, 3);
    for (const DType type : kAllTypes) {
      for (const std::int64_t tokens : {1, 5, 33}) {
        const Case c = make_case(type, 147, width_of(type, 2), tokens, 13);
        const std::vector<float> all = run(one, c, whole(c));
        INFO(isa_name(isa) << " " << dtype_name(type) << " tokens " << tokens);
        CHECK(same_bits(run(three, c, whole(c)), all));
        const std::vector<float> slice = run(three, c, {.first = 0, .count = tokens, .begin = 21, .end = 90});
        bool inside_same = true;
        bool outside_kept = true;
        for (std::int64_t i = 0; i < tokens * 147; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const bool inside = i % 147 >= 21 && i % 147 < 90;
          inside_same = inside_same && (!inside || slice[at] == all[at]);
          outside_kept = outside_kept && (inside || slice[at] == 0.5F);
        }
        CHECK(inside_same);
        CHECK(outside_kept);
      }
    }
  }
}

TEST_CASE("accumulate adds the product to what is there") {
  for (const Isa isa : isa_supported_all()) {
    Compute compute = make_compute(isa, 2);
    for (const DType type : kAllTypes) {
      const Case c = make_case(type, 19, width_of(type, 1), 3, 17);
      const std::vector<float> plain = run(compute, c, whole(c));
      const std::vector<float> added = run(compute, c, whole(c), true);
      for (std::size_t i = 0; i < plain.size(); ++i) {
        REQUIRE(added[i] == 0.5F + plain[i]);
      }
    }
  }
}

TEST_CASE("activations are rounded to 8 bits within half a step, sums are exact") {
  for (const Isa isa : isa_supported_all()) {
    const KernelTable& table = kernel_table(isa);
    Random random(3);
    std::vector<float> x = random.normals(96 + 7);
    std::fill(x.begin() + 32, x.begin() + 64, 0.0F);
    ActBlock blocks[4];
    table.quantise_row(x.data(), static_cast<std::int64_t>(x.size()), blocks);
    for (std::size_t i = 0; i < 128; ++i) {
      const ActBlock& block = blocks[i / 32];
      const double wanted = i < x.size() ? static_cast<double>(x[i]) : 0.0;
      const double d = static_cast<double>(block.d);
      INFO(isa_name(isa) << " " << i);
      CHECK(std::fabs(d * static_cast<double>(block.q[i % 32]) - wanted) <= d * 0.5001);
    }
    for (const ActBlock& block : blocks) {
      std::int32_t low = 0;
      std::int32_t sum = 0;
      for (int i = 0; i < 32; ++i) {
        low += i < 16 ? block.q[i] : 0;
        sum += block.q[i];
      }
      CHECK(block.n128 == -128 * sum);
      CHECK(block.n128_lo == -128 * low);
      CHECK(block.d_sum == block.d * static_cast<float>(sum));
    }
    CHECK(blocks[1].d_sum == 0.0F);
  }
}

TEST_CASE("dequantised rows equal the format's definition to one rounding") {
  Random random(5);
  for (const DType type : kAllTypes) {
    const Weight weight = random_weight(type, 3, 512, random);
    for (std::int64_t row = 0; row < 3; ++row) {
      std::vector<float> got(512);
      dequantize_row(type, weight.bytes.data() + row * row_bytes(type, 512), 512, got.data());
      const reference::Comparison found =
          compare(got, decode_row(weight, row), 2.0 * reference::kEpsilon, 1e-7);
      INFO(dtype_name(type) << " " << found.text());
      CHECK(found.ok());
    }
  }
}

}  // namespace tandem::kernels
