// Attention over paged KV against a double version, and its independence from batch and chunking.
#include "kernels/attention.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>

#include "tests/support/catch.h"
#include "tests/unit/kernels/reference.h"

namespace tandem::kernels {
namespace {

using reference::compare;
using reference::kEpsilon;
using reference::Random;
using reference::same_bits;

// One sequence's pages: two layers' worth of blocks, of which the second is used. Pages start as NaN.
class Pages {
 public:
  Pages(const KvShape& shape, std::int64_t tokens) : block_(kv_block_bytes(shape)) {
    const std::int64_t count = (tokens + kPageTokens - 1) / kPageTokens;
    for (std::int64_t i = 0; i < count; ++i) {
      owned_.emplace_back(static_cast<std::byte*>(std::aligned_alloc(64, 4 * block_)), std::free);
      std::fill_n(reinterpret_cast<std::uint16_t*>(owned_.back().get()), 2 * block_, std::uint16_t{0x7E00});
      list_.push_back(owned_.back().get());
    }
  }
  [[nodiscard]] std::byte* const* list() const { return list_.data(); }
  [[nodiscard]] std::size_t k_offset() const { return 2 * block_; }
  [[nodiscard]] std::size_t v_offset() const { return 3 * block_; }

 private:
  std::size_t block_;
  std::vector<std::unique_ptr<std::byte, void (*)(void*)>> owned_;
  std::vector<std::byte*> list_;
};

struct Case {
  KvShape shape;
  std::int64_t q_heads = 0;
  std::int64_t tokens = 0;
  float scale = 0.0F;
  std::vector<float> q, k, v;  // [tokens][heads * head_dim]
  [[nodiscard]] std::int64_t q_width() const { return q_heads * shape.head_dim; }
  [[nodiscard]] std::int64_t kv_width() const { return shape.kv_heads * shape.head_dim; }
};

Case make_case(std::int64_t q_heads, std::int64_t kv_heads, std::int64_t head_dim, std::int64_t tokens) {
  Random random(static_cast<std::uint64_t>(q_heads * 1000 + head_dim + tokens));
  Case c{.shape = {.kv_heads = kv_heads, .head_dim = head_dim}, .q_heads = q_heads, .tokens = tokens, .scale = 0.0F,
         .q = {}, .k = {}, .v = {}};
  c.scale = 2.0F / std::sqrt(static_cast<float>(head_dim));
  c.q = random.normals(tokens * c.q_width());
  c.k = random.normals(tokens * c.kv_width());
  c.v = random.normals(tokens * c.kv_width());
  return c;
}

// Writes and attends tokens [first, first + count) of the case.
void run_chunk(Compute& compute, const Case& c, const Pages& pages, std::int64_t first, std::int64_t count,
               std::vector<float>& out) {
  std::vector<KvRow> rows;
  for (std::int64_t t = first; t < first + count; ++t) {
    rows.push_back({.pages = pages.list(), .position = static_cast<std::int32_t>(t)});
  }
  kv_write(compute, {.shape = c.shape,
                     .k_offset = pages.k_offset(),
                     .v_offset = pages.v_offset(),
                     .rows = rows,
                     .k = c.k.data() + first * c.kv_width(),
                     .v = c.v.data() + first * c.kv_width(),
                     .k_stride = c.kv_width(),
                     .v_stride = c.kv_width()});
  attention(compute, {.shape = c.shape,
                      .q_heads = c.q_heads,
                      .scale = c.scale,
                      .k_offset = pages.k_offset(),
                      .v_offset = pages.v_offset(),
                      .rows = rows,
                      .q = c.q.data() + first * c.q_width(),
                      .q_token_stride = c.q_width(),
                      .q_head_stride = c.shape.head_dim,
                      .out = out.data() + first * c.q_width(),
                      .out_stride = c.q_width()});
}

std::vector<float> run(Compute& compute, const Case& c, std::int64_t chunk) {
  const Pages pages(c.shape, c.tokens);
  std::vector<float> out(c.q.size());
  for (std::int64_t first = 0; first < c.tokens; first += chunk) {
    run_chunk(compute, c, pages, first, std::min(chunk, c.tokens - first), out);
  }
  return out;
}

double as_half(float value) { return reference::half_to_double(reference::double_to_half(static_cast<double>(value))); }

// The error of one score moves a probability by that relative amount; V terms then add up.
void check(const Case& c, const std::vector<float>& got) {
  const std::int64_t group = c.q_heads / c.shape.kv_heads;
  const std::int64_t dim = c.shape.head_dim;
  std::vector<double> wanted(got.size());
  std::vector<double> tolerance(got.size());
  std::vector<double> p(static_cast<std::size_t>(c.tokens));
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t h = 0; h < c.q_heads; ++h) {
      const float* q = c.q.data() + t * c.q_width() + h * dim;
      const std::int64_t kv_at = h / group * dim;
      double max = -std::numeric_limits<double>::infinity();
      double score_error = 0.0;
      for (std::int64_t key = 0; key <= t; ++key) {
        double dot = 0.0;
        double magnitude = 0.0;
        for (std::int64_t d = 0; d < dim; ++d) {
          const double term = static_cast<double>(q[d]) *
                              as_half(c.k[static_cast<std::size_t>(key * c.kv_width() + kv_at + d)]);
          dot += term;
          magnitude += std::fabs(term);
        }
        p[static_cast<std::size_t>(key)] = dot * static_cast<double>(c.scale);
        max = std::max(max, p[static_cast<std::size_t>(key)]);
        score_error = std::max(score_error, magnitude * static_cast<double>(c.scale) * kEpsilon);
      }
      double total = 0.0;
      for (std::int64_t key = 0; key <= t; ++key) {
        p[static_cast<std::size_t>(key)] = std::exp(p[static_cast<std::size_t>(key)] - max);
        total += p[static_cast<std::size_t>(key)];
      }
      for (std::int64_t d = 0; d < dim; ++d) {
        double sum = 0.0;
        double magnitude = 0.0;
        for (std::int64_t key = 0; key <= t; ++key) {
          const double term = p[static_cast<std::size_t>(key)] / total *
                              as_half(c.v[static_cast<std::size_t>(key * c.kv_width() + kv_at + d)]);
          sum += term;
          magnitude += std::fabs(term);
        }
        const auto at = static_cast<std::size_t>(t * c.q_width() + h * dim + d);
        wanted[at] = sum;
        tolerance[at] = magnitude * (std::sqrt(static_cast<double>(dim)) * 2.0 * score_error +
                                     (16.0 + static_cast<double>(t) / 4.0) * kEpsilon);
      }
    }
  }
  const reference::Comparison found = compare(got, wanted, tolerance);
  INFO(c.q_heads << "/" << c.shape.kv_heads << " x " << dim << ", " << c.tokens << " tokens: " << found.text());
  CHECK(found.ok());
}

}  // namespace

TEST_CASE("attention equals the reference for all head shapes") {
  for (const Isa isa : isa_supported_all()) {
    Compute compute({.threads = 2, .isa = isa});
    INFO(isa_name(isa));
    for (const std::int64_t head_dim : {8, 24, 40, 64, 128, 256}) {
      check(make_case(6, 2, head_dim, 70), run(compute, make_case(6, 2, head_dim, 70), 70));
    }
    for (const std::int64_t tokens : {1, 2, 31, 32, 33, 65}) {
      const Case c = make_case(7, 1, 64, tokens);
      check(c, run(compute, c, tokens));
    }
    const Case plain = make_case(3, 3, 16, 40);
    check(plain, run(compute, plain, 16));
  }
}

TEST_CASE("chunks of any size and decoding give the same bits") {
  for (const Isa isa : isa_supported_all()) {
    Compute compute({.threads = 3, .isa = isa});
    INFO(isa_name(isa));
    for (const std::int64_t head_dim : {24, 64, 128}) {
      const Case c = make_case(14, 2, head_dim, 101);
      const std::vector<float> whole = run(compute, c, 101);
      for (const std::int64_t chunk : {1, 3, 16, 32, 64}) {
        INFO("head dim " << head_dim << " chunk " << chunk);
        CHECK(same_bits(run(compute, c, chunk), whole));
      }
    }
  }
}

TEST_CASE("sequences in one call do not touch each other") {
  for (const Isa isa : isa_supported_all()) {
    Compute compute({.threads = 2, .isa = isa});
    INFO(isa_name(isa));
    const Case a = make_case(4, 2, 64, 50);
    const Case b = make_case(4, 2, 64, 37);
    const std::vector<float> alone_a = run(compute, a, 50);
    const std::vector<float> alone_b = run(compute, b, 37);

    const Pages pages_a(a.shape, 50);
    const Pages pages_b(b.shape, 37);
    std::vector<float> out_a(a.q.size());
    std::vector<float> out_b(b.q.size());
    run_chunk(compute, a, pages_a, 0, 49, out_a);
    run_chunk(compute, b, pages_b, 0, 20, out_b);
    // The last token of a, then the last 17 of b, as one batch.
    std::vector<KvRow> rows = {{.pages = pages_a.list(), .position = 49}};
    std::vector<float> q(a.q.end() - a.q_width(), a.q.end());
    std::vector<float> k(a.k.end() - a.kv_width(), a.k.end());
    std::vector<float> v(a.v.end() - a.kv_width(), a.v.end());
    for (std::int32_t t = 20; t < 37; ++t) {
      rows.push_back({.pages = pages_b.list(), .position = t});
    }
    q.insert(q.end(), b.q.begin() + 20 * b.q_width(), b.q.end());
    k.insert(k.end(), b.k.begin() + 20 * b.kv_width(), b.k.end());
    v.insert(v.end(), b.v.begin() + 20 * b.kv_width(), b.v.end());
    std::vector<float> out(q.size());
    kv_write(compute, {.shape = a.shape,
                       .k_offset = pages_a.k_offset(),
                       .v_offset = pages_a.v_offset(),
                       .rows = rows,
                       .k = k.data(),
                       .v = v.data(),
                       .k_stride = a.kv_width(),
                       .v_stride = a.kv_width()});
    attention(compute, {.shape = a.shape,
                        .q_heads = a.q_heads,
                        .scale = a.scale,
                        .k_offset = pages_a.k_offset(),
                        .v_offset = pages_a.v_offset(),
                        .rows = rows,
                        .q = q.data(),
                        .q_token_stride = a.q_width(),
                        .q_head_stride = 64,
                        .out = out.data(),
                        .out_stride = a.q_width()});
    const std::vector<float> got_a(out.begin(), out.begin() + a.q_width());
    const std::vector<float> got_b(out.begin() + a.q_width(), out.end());
    CHECK(same_bits(got_a, {alone_a.end() - a.q_width(), alone_a.end()}));
    CHECK(same_bits(got_b, {alone_b.begin() + 20 * b.q_width(), alone_b.end()}));
  }
}

}  // namespace tandem::kernels
