// Gated DeltaNet against a double version of its formulas, and its independence from chunking.
#include "kernels/gdn.h"

#include <cmath>

#include "tests/support/catch.h"
#include "tests/unit/kernels/reference.h"

namespace tandem::kernels {
namespace {

using reference::compare;
using reference::kEpsilon;
using reference::Random;
using reference::same_bits;

struct Case {
  GdnShape shape;
  std::int64_t tokens = 0;
  std::vector<float> u, conv_weight, alpha, beta, a, dt_bias, z, norm_weight;
};

Case make_case(const GdnShape& shape, std::int64_t tokens, std::uint64_t seed) {
  Random random(seed);
  Case c{.shape = shape, .tokens = tokens, .u = random.normals(tokens * gdn_channels(shape)),
         .conv_weight = random.normals(gdn_channels(shape) * 4),
         .alpha = random.normals(tokens * shape.v_heads), .beta = random.normals(tokens * shape.v_heads),
         .a = random.normals(shape.v_heads), .dt_bias = random.normals(shape.v_heads),
         .z = random.normals(tokens * shape.v_heads * shape.v_dim), .norm_weight = random.normals(shape.v_dim)};
  for (float& value : c.a) {
    value = -0.3F * std::fabs(value) - 0.01F;
  }
  return c;
}

struct Outputs {
  std::vector<float> conv, mixed, normed, conv_state, recurrent;
};

std::vector<float> zeros(std::int64_t n) { return std::vector<float>(static_cast<std::size_t>(n), 0.0F); }

Outputs run(Compute& compute, const Case& c, std::int64_t chunk) {
  const std::int64_t channels = gdn_channels(c.shape);
  const std::int64_t width = c.shape.v_heads * c.shape.v_dim;
  Outputs out{.conv = zeros(c.tokens * channels), .mixed = zeros(c.tokens * width),
              .normed = zeros(c.tokens * width), .conv_state = zeros(3 * channels),
              .recurrent = zeros(c.shape.v_heads * c.shape.v_dim * c.shape.k_dim)};
  std::vector<float> work = out.conv;
  for (std::int64_t first = 0; first < c.tokens; first += chunk) {
    const std::int64_t rows = std::min(chunk, c.tokens - first);
    const std::vector<GdnSequence> sequences = {{.conv_state = out.conv_state.data(),
                                                 .recurrent_state = out.recurrent.data(),
                                                 .row_begin = first,
                                                 .rows = rows}};
    gdn_conv(compute, {.shape = c.shape, .sequences = sequences, .u = c.u.data(), .u_stride = channels,
                       .weight = c.conv_weight.data(), .c = out.conv.data(), .c_stride = channels});
    std::copy(out.conv.begin() + first * channels, out.conv.begin() + (first + rows) * channels,
              work.begin() + first * channels);
    gdn_recurrence(compute, {.shape = c.shape, .sequences = sequences, .c = work.data(), .c_stride = channels,
                             .alpha = c.alpha.data(), .beta = c.beta.data(), .gate_stride = c.shape.v_heads,
                             .a = c.a.data(), .dt_bias = c.dt_bias.data(), .out = out.mixed.data(),
                             .out_stride = width});
  }
  gdn_gated_norm(compute, {.shape = c.shape, .tokens = c.tokens, .o = out.mixed.data(), .o_stride = width,
                           .z = c.z.data(), .z_stride = width, .weight = c.norm_weight.data(), .eps = 1e-6F,
                           .out = out.normed.data(), .out_stride = width});
  return out;
}

double silu(double x) { return x / (1.0 + std::exp(-x)); }

std::vector<double> conv_reference(const Case& c) {
  const std::int64_t channels = gdn_channels(c.shape);
  std::vector<double> out;
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t ch = 0; ch < channels; ++ch) {
      double sum = 0.0;
      for (std::int64_t j = 0; j < 4; ++j) {
        const std::int64_t from = t - 3 + j;
        if (from >= 0) {
          sum += static_cast<double>(c.conv_weight[static_cast<std::size_t>(4 * ch + j)]) *
                 static_cast<double>(c.u[static_cast<std::size_t>(from * channels + ch)]);
        }
      }
      out.push_back(silu(sum));
    }
  }
  return out;
}

std::vector<double> unit(const double* x, std::int64_t n, double scale) {
  double squares = 1e-6;
  for (std::int64_t i = 0; i < n; ++i) {
    squares += x[i] * x[i];
  }
  std::vector<double> out;
  for (std::int64_t i = 0; i < n; ++i) {
    out.push_back(x[i] * scale / std::sqrt(squares));
  }
  return out;
}

// One V head over all tokens, from the (double) convolution output.
void head_reference(const Case& c, const std::vector<double>& conv, std::int64_t head, std::vector<double>& out) {
  const GdnShape& s = c.shape;
  const std::int64_t channels = gdn_channels(s);
  const std::int64_t k_head = s.head_map == GdnHeadMap::tiled ? head % s.k_heads : head / (s.v_heads / s.k_heads);
  std::vector<double> state(static_cast<std::size_t>(s.k_dim * s.v_dim), 0.0);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    const double* row = conv.data() + t * channels;
    const std::vector<double> q = unit(row + k_head * s.k_dim, s.k_dim, 1.0 / std::sqrt(static_cast<double>(s.k_dim)));
    const std::vector<double> k = unit(row + (s.k_heads + k_head) * s.k_dim, s.k_dim, 1.0);
    const double* v = row + 2 * s.k_heads * s.k_dim + head * s.v_dim;
    const auto gate = static_cast<std::size_t>(t * s.v_heads + head);
    const auto h = static_cast<std::size_t>(head);
    const double dt = std::log1p(std::exp(static_cast<double>(c.alpha[gate]) + static_cast<double>(c.dt_bias[h])));
    const double decay = std::exp(static_cast<double>(c.a[h]) * dt);
    const double beta = 1.0 / (1.0 + std::exp(-static_cast<double>(c.beta[gate])));
    for (std::int64_t j = 0; j < s.v_dim; ++j) {
      double seen = 0.0;
      for (std::int64_t i = 0; i < s.k_dim; ++i) {
        double& cell = state[static_cast<std::size_t>(i * s.v_dim + j)];
        cell *= decay;
        seen += cell * k[static_cast<std::size_t>(i)];
      }
      const double delta = beta * (v[j] - seen);
      double sum = 0.0;
      for (std::int64_t i = 0; i < s.k_dim; ++i) {
        double& cell = state[static_cast<std::size_t>(i * s.v_dim + j)];
        cell += k[static_cast<std::size_t>(i)] * delta;
        sum += cell * q[static_cast<std::size_t>(i)];
      }
      out[static_cast<std::size_t>((t * s.v_heads + head) * s.v_dim + j)] = sum;
    }
  }
}

constexpr GdnShape kShapes[] = {
    {.k_heads = 2, .v_heads = 6, .k_dim = 128, .v_dim = 128, .head_map = GdnHeadMap::tiled},
    {.k_heads = 2, .v_heads = 4, .k_dim = 32, .v_dim = 64, .head_map = GdnHeadMap::grouped},
    {.k_heads = 1, .v_heads = 1, .k_dim = 8, .v_dim = 8, .head_map = GdnHeadMap::tiled},
    {.k_heads = 2, .v_heads = 2, .k_dim = 24, .v_dim = 40, .head_map = GdnHeadMap::tiled},
    {.k_heads = 1, .v_heads = 3, .k_dim = 16, .v_dim = 48, .head_map = GdnHeadMap::tiled},
};

}  // namespace

TEST_CASE("gated deltanet equals the reference") {
  for (const Isa isa : isa_supported_all()) {
    Compute compute({.threads = 2, .isa = isa});
    for (const GdnShape& shape : kShapes) {
      const Case c = make_case(shape, 37, 5);
      const Outputs got = run(compute, c, 37);
      const std::vector<double> conv = conv_reference(c);
      std::vector<double> mixed(got.mixed.size());
      for (std::int64_t head = 0; head < shape.v_heads; ++head) {
        head_reference(c, conv, head, mixed);
      }
      std::vector<double> normed(mixed.size());
      for (std::int64_t first = 0; first < static_cast<std::int64_t>(mixed.size()); first += shape.v_dim) {
        double squares = 0.0;
        for (std::int64_t i = 0; i < shape.v_dim; ++i) {
          squares += mixed[static_cast<std::size_t>(first + i)] * mixed[static_cast<std::size_t>(first + i)];
        }
        const double scale = 1.0 / std::sqrt(squares / static_cast<double>(shape.v_dim) + 1e-6);
        for (std::int64_t i = 0; i < shape.v_dim; ++i) {
          const auto at = static_cast<std::size_t>(first + i);
          normed[at] = mixed[at] * scale * static_cast<double>(c.norm_weight[static_cast<std::size_t>(i)]) *
                       silu(static_cast<double>(c.z[at]));
        }
      }
      INFO(isa_name(isa) << " " << shape.k_dim << "x" << shape.v_dim);
      const reference::Comparison in_conv = compare(got.conv, conv, 64.0 * kEpsilon, 16.0 * kEpsilon);
      // The recurrence is a contraction (|k| = 1, beta < 1): errors of a step do not grow, they add.
      const double steps = 37.0 * std::sqrt(static_cast<double>(shape.k_dim)) * 4.0;
      const reference::Comparison in_state = compare(got.mixed, mixed, steps * kEpsilon, steps * kEpsilon);
      const reference::Comparison in_norm = compare(got.normed, normed, 1e-3, 60.0 * steps * kEpsilon);
      INFO(in_conv.text() << " / " << in_state.text() << " / " << in_norm.text());
      CHECK(in_conv.ok());
      CHECK(in_state.ok());
      CHECK(in_norm.ok());
    }
  }
}

TEST_CASE("gated deltanet: chunks change no bit of outputs or states") {
  for (const Isa isa : isa_supported_all()) {
    Compute compute({.threads = 3, .isa = isa});
    for (const GdnShape& shape : kShapes) {
      const Case c = make_case(shape, 75, 6);
      const Outputs whole = run(compute, c, 75);
      for (const std::int64_t chunk : {1, 2, 3, 64}) {
        const Outputs got = run(compute, c, chunk);
        INFO(isa_name(isa) << " " << shape.k_dim << "x" << shape.v_dim << " chunk " << chunk);
        CHECK(same_bits(got.conv, whole.conv));
        CHECK(same_bits(got.mixed, whole.mixed));
        CHECK(same_bits(got.conv_state, whole.conv_state));
        CHECK(same_bits(got.recurrent, whole.recurrent));
      }
    }
  }
}

TEST_CASE("gated deltanet: two sequences in one call equal each alone") {
  for (const Isa isa : isa_supported_all()) {
    Compute compute({.threads = 2, .isa = isa});
    const GdnShape shape = kShapes[1];
    const std::int64_t channels = gdn_channels(shape);
    const Case both = make_case(shape, 12, 8);  // rows 0..4 are one sequence, 5..11 another
    Case second = both;
    second.u.erase(second.u.begin(), second.u.begin() + 5 * channels);
    second.alpha.erase(second.alpha.begin(), second.alpha.begin() + 5 * shape.v_heads);
    second.beta.erase(second.beta.begin(), second.beta.begin() + 5 * shape.v_heads);
    second.tokens = 7;
    const Outputs alone = run(compute, second, 7);

    std::vector<float> conv_a = zeros(3 * channels);
    std::vector<float> conv_b = conv_a;
    std::vector<float> state_a = zeros(shape.v_heads * shape.v_dim * shape.k_dim);
    std::vector<float> state_b = state_a;
    const std::vector<GdnSequence> sequences = {
        {.conv_state = conv_a.data(), .recurrent_state = state_a.data(), .row_begin = 0, .rows = 5},
        {.conv_state = conv_b.data(), .recurrent_state = state_b.data(), .row_begin = 5, .rows = 7}};
    std::vector<float> c = zeros(12 * channels);
    std::vector<float> out = zeros(12 * shape.v_heads * shape.v_dim);
    gdn_conv(compute, {.shape = shape, .sequences = sequences, .u = both.u.data(), .u_stride = channels,
                       .weight = both.conv_weight.data(), .c = c.data(), .c_stride = channels});
    gdn_recurrence(compute, {.shape = shape, .sequences = sequences, .c = c.data(), .c_stride = channels,
                             .alpha = both.alpha.data(), .beta = both.beta.data(), .gate_stride = shape.v_heads,
                             .a = both.a.data(), .dt_bias = both.dt_bias.data(), .out = out.data(),
                             .out_stride = shape.v_heads * shape.v_dim});
    const std::vector<float> got(out.begin() + 5 * shape.v_heads * shape.v_dim, out.end());
    INFO(isa_name(isa));
    CHECK(same_bits(got, alone.mixed));
    CHECK(same_bits(state_b, alone.recurrent));
  }
}

}  // namespace tandem::kernels
