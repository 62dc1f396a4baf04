// The small f32 operations of every level against double versions, over lengths around vector borders.
#include "kernels/ops.h"

#include <cmath>
#include <limits>

#include "tests/support/catch.h"
#include "tests/unit/kernels/reference.h"

namespace tandem::kernels {
namespace {

using reference::compare;
using reference::kEpsilon;
using reference::Random;
using reference::same_bits;

constexpr std::int64_t kLengths[] = {1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 65, 576, 897};

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

template <typename Fn>
void for_each_level(Fn fn) {
  for (const Isa isa : isa_supported_all()) {
    Compute compute({.threads = 2, .isa = isa});
    INFO(isa_name(isa));
    fn(compute);
  }
}

// Two tokens of three heads inside wider rows, so that strides matter.
struct Strided {
  std::int64_t width = 0;
  std::int64_t head_stride = 0;
  std::int64_t token_stride = 0;
  std::vector<float> values;
};

Strided strided(std::int64_t width, Random& random) {
  Strided s{.width = width, .head_stride = width + 3, .token_stride = 3 * (width + 3) + 5, .values = {}};
  s.values = random.normals(2 * s.token_stride);
  return s;
}

std::vector<double> rmsnorm_reference(const float* x, const float* weight, std::int64_t n, double eps) {
  double squares = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(n) + eps);
  std::vector<double> out;
  for (std::int64_t i = 0; i < n; ++i) {
    out.push_back(static_cast<double>(x[i]) * scale * (weight == nullptr ? 1.0 : static_cast<double>(weight[i])));
  }
  return out;
}

}  // namespace

TEST_CASE("rmsnorm: weighted and not, per head, at any length") {
  for_each_level([](Compute& compute) {
    for (const std::int64_t n : kLengths) {
      Random random(static_cast<std::uint64_t>(n));
      const Strided x = strided(n, random);
      const std::vector<float> weight = random.normals(n);
      for (const float* w : {weight.data(), static_cast<const float*>(nullptr)}) {
        std::vector<float> out(static_cast<std::size_t>(6 * n));
        rmsnorm(compute, {.shape = {.tokens = 2, .heads = 3, .width = n},
                          .x = x.values.data(),
                          .x_token_stride = x.token_stride,
                          .x_head_stride = x.head_stride,
                          .weight = w,
                          .eps = 1e-5F,
                          .out = out.data(),
                          .out_token_stride = 3 * n,
                          .out_head_stride = n});
        std::vector<double> wanted;
        for (std::int64_t t = 0; t < 2; ++t) {
          for (std::int64_t h = 0; h < 3; ++h) {
            const float* row = x.values.data() + t * x.token_stride + h * x.head_stride;
            const std::vector<double> normed = rmsnorm_reference(row, w, n, static_cast<double>(1e-5F));
            wanted.insert(wanted.end(), normed.begin(), normed.end());
          }
        }
        // Half the relative error of the sum of squares, plus five roundings.
        const double relative = (static_cast<double>(n) / 8.0 + 6.0) * kEpsilon;
        const reference::Comparison found = compare(out, wanted, relative, 0.0);
        INFO("n " << n << ": " << found.text());
        CHECK(found.ok());
      }
    }
  });
}

TEST_CASE("swiglu and the sigmoid gate, far into both tails") {
  for_each_level([](Compute& compute) {
    for (const std::int64_t n : kLengths) {
      Random random(static_cast<std::uint64_t>(n) + 100);
      std::vector<float> gate = random.normals(n);
      for (std::int64_t i = 0; i < n; ++i) {
        gate[static_cast<std::size_t>(i)] *= static_cast<float>(1 + i % 40);  // to about +-80
      }
      const std::vector<float> x = random.normals(n);
      std::vector<float> glu(gate.size());
      std::vector<float> gated(gate.size());
      swiglu(compute, {.tokens = 1, .width = n, .gate = gate.data(), .up = x.data(), .out = glu.data()});
      sigmoid_gate(compute, {.shape = {.tokens = 1, .heads = 1, .width = n},
                             .x = x.data(),
                             .gate = gate.data(),
                             .out = gated.data()});
      std::vector<double> wanted_glu;
      std::vector<double> wanted_gated;
      for (std::size_t i = 0; i < gate.size(); ++i) {
        const auto g = static_cast<double>(gate[i]);
        wanted_glu.push_back(g * sigmoid(g) * static_cast<double>(x[i]));
        wanted_gated.push_back(static_cast<double>(x[i]) * sigmoid(g));
      }
      // e^x to 2e-7 and its argument's own rounding, then a few operations.
      const reference::Comparison a = compare(glu, wanted_glu, 16.0 * kEpsilon, 1e-35);
      const reference::Comparison b = compare(gated, wanted_gated, 16.0 * kEpsilon, 1e-35);
      INFO("n " << n << ": " << a.text() << " / " << b.text());
      CHECK(a.ok());
      CHECK(b.ok());
    }
  });
}

TEST_CASE("extreme gates give limits, not NaN") {
  for_each_level([](Compute& compute) {
    std::vector<float> gate = {-1e30F, -200.0F, -89.0F, 89.0F, 200.0F, 1e30F};
    const std::vector<float> up(gate.size(), 2.0F);
    std::vector<float> out(gate.size());
    sigmoid_gate(compute, {.shape = {.tokens = 1, .heads = 1, .width = 6},
                           .x = up.data(),
                           .gate = gate.data(),
                           .out = out.data()});
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK((out[i] >= 0.0F && out[i] < 1e-37F));
      CHECK(out[i + 3] == 2.0F);
    }
  });
}

TEST_CASE("rope: both pairings, partial, with factors, at far positions") {
  for_each_level([](Compute& compute) {
    for (const RopePairs pairs : {RopePairs::adjacent, RopePairs::halves}) {
      for (const std::int64_t n_rot : {2, 6, 16, 30, 64, 128}) {
        Random random(static_cast<std::uint64_t>(n_rot));
        const std::vector<std::int32_t> positions = {0, 1, 77, 260000};
        std::vector<float> factors;
        for (std::int64_t i = 0; i < n_rot / 2; ++i) {
          factors.push_back(random.uniform(1.0F, 8.0F));
        }
        std::vector<float> angles(static_cast<std::size_t>(rope_angle_floats(4, n_rot)));
        rope_angles(compute, {.positions = positions,
                              .n_rot = n_rot,
                              .base = 1e6,
                              .scale = 0.5,
                              .factors = factors.data(),
                              .out = angles.data()});
        const std::int64_t width = n_rot + 4;  // four dims pass through
        std::vector<float> x = random.normals(4 * 2 * width);
        const std::vector<float> before = x;
        rope(compute, {.tokens = 4,
                       .heads = 2,
                       .n_rot = n_rot,
                       .pairs = pairs,
                       .angles = angles.data(),
                       .x = x.data(),
                       .token_stride = 2 * width,
                       .head_stride = width});
        std::vector<double> wanted(before.begin(), before.end());
        std::vector<double> tolerance(before.size(), 0.0);
        for (std::size_t v = 0; v < 8; ++v) {
          for (std::int64_t i = 0; i < n_rot / 2; ++i) {
            const double theta = static_cast<double>(positions[v / 2]) * 0.5 *
                                 std::pow(1e6, -2.0 * static_cast<double>(i) / static_cast<double>(n_rot)) /
                                 static_cast<double>(factors[static_cast<std::size_t>(i)]);
            const auto base = v * static_cast<std::size_t>(width);
            const std::size_t a =
                base + static_cast<std::size_t>(pairs == RopePairs::adjacent ? 2 * i : i);
            const std::size_t b =
                base + static_cast<std::size_t>(pairs == RopePairs::adjacent ? 2 * i + 1 : i + n_rot / 2);
            const auto xa = static_cast<double>(before[a]);
            const auto xb = static_cast<double>(before[b]);
            wanted[a] = xa * std::cos(theta) - xb * std::sin(theta);
            wanted[b] = xa * std::sin(theta) + xb * std::cos(theta);
            tolerance[a] = tolerance[b] = 4.0 * kEpsilon * (std::fabs(xa) + std::fabs(xb));
          }
        }
        const reference::Comparison found = compare(x, wanted, tolerance);
        INFO("n_rot " << n_rot << ": " << found.text());
        CHECK(found.ok());
      }
    }
  });
}

TEST_CASE("add and softmax parts") {
  for_each_level([](Compute& compute) {
    for (const std::int64_t n : {1, 5, 16, 1023, 1024, 1025, 9000}) {
      Random random(static_cast<std::uint64_t>(n));
      const std::vector<float> x = random.normals(n);
      std::vector<float> y = random.normals(n);
      const std::vector<float> before = y;
      add(compute, x.data(), y.data(), n);
      double total = 0.0;
      double max = -std::numeric_limits<double>::infinity();
      for (std::size_t i = 0; i < x.size(); ++i) {
        REQUIRE(y[i] == before[i] + x[i]);
        max = std::max(max, static_cast<double>(x[i]));
      }
      for (const float value : x) {
        total += std::exp(static_cast<double>(value) - max);
      }
      const SoftmaxParts parts = softmax_parts(compute, x);
      CHECK(static_cast<double>(parts.max) == max);
      CHECK(std::fabs(parts.log_sum - std::log(total)) <= 70.0 * kEpsilon);
    }
  });
}

TEST_CASE("embedding rows are the table's rows, in the order of the ids") {
  for_each_level([](Compute& compute) {
    Random random(9);
    for (const DType type : {DType::f16, DType::q8_0, DType::q6_k}) {
      const reference::Weight table = reference::random_weight(type, 11, 256, random);
      const std::vector<std::int32_t> ids = {10, 0, 3, 3};
      std::vector<float> out(4 * 300, -1.0F);
      embed_rows(compute, {.table = table.view(), .ids = ids, .out = out.data(), .out_stride = 300});
      for (std::size_t t = 0; t < ids.size(); ++t) {
        const std::vector<float> got(out.begin() + static_cast<std::ptrdiff_t>(t * 300),
                                     out.begin() + static_cast<std::ptrdiff_t>(t * 300 + 256));
        const reference::Comparison found = compare(got, decode_row(table, ids[t]), 2.0 * kEpsilon, 1e-7);
        INFO(found.text());
        CHECK(found.ok());
        CHECK(out[t * 300 + 256] == -1.0F);
      }
    }
  });
}

TEST_CASE("a row's result is the same alone and among many") {
  for_each_level([](Compute& compute) {
    Random random(21);
    constexpr std::int64_t kWidth = 203;
    constexpr std::int64_t kTokens = 40;
    const std::vector<float> x = random.normals(kTokens * kWidth);
    const std::vector<float> weight = random.normals(kWidth);
    std::vector<float> all(x.size());
    const RmsNorm many{.shape = {.tokens = kTokens, .heads = 1, .width = kWidth},
                       .x = x.data(),
                       .x_token_stride = kWidth,
                       .weight = weight.data(),
                       .out = all.data(),
                       .out_token_stride = kWidth};
    rmsnorm(compute, many);
    std::vector<float> single(x.size());
    for (std::int64_t t = 0; t < kTokens; ++t) {
      RmsNorm one = many;
      one.shape.tokens = 1;
      one.x = x.data() + t * kWidth;
      one.out = single.data() + t * kWidth;
      rmsnorm(compute, one);
    }
    CHECK(same_bits(single, all));
  });
}

}  // namespace tandem::kernels
