// Every family against the double reference, with sizes that fit no vector length and no page.
#include <cmath>
#include <cstdio>
#include <string>

#include "engine/model/parts.h"
#include "tests/support/catch.h"
#include "tests/support/model_fixture.h"
#include "tests/unit/engine/random_model.h"
#include "tests/unit/engine/reference_forward.h"

namespace tandem_tests {
namespace {

using tandem::engine::GgufFile;
using tandem::engine::LogitsFor;

constexpr size_t kTokens = 70;  // three pages, the last one partly
// f32 against double over a few layers leaves 1e-6; a key that rounds to the other f16 neighbour
// because of it adds up to a few 1e-5. A wrong formula gives 1e-2 and more.
constexpr double kErrorMax = 2e-4;

double relative_error(std::span<const float> ours, const std::vector<double>& exact) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double delta = static_cast<double>(ours[i]) - exact[i];
    difference += delta * delta;
    norm += exact[i] * exact[i];
  }
  return std::sqrt(difference / norm);
}

void compare(const RandomModelSpec& spec) {
  const RandomModel model = make_random_model(spec);
  const std::vector<int32_t> tokens = random_tokens(spec, kTokens);
  const auto expected = reference_forward(model, tokens);
  auto made = ModelFixture::make(GgufFile::from_bytes(model.bytes()).value(),
                                 {.context_tokens = 128, .rows_max = 64, .logit_rows_max = 64});
  INFO(spec.family << " " << (made.ok() ? "" : made.error().message));
  REQUIRE(made.ok());
  ModelFixture& fixture = **made;
  auto sequence = fixture.store->create_sequence().value();
  double worst = 0;
  size_t rows = 0;
  const auto sink = [&](int64_t position, std::span<const float> logits) {
    const double error = relative_error(logits, expected[static_cast<size_t>(position)]);
    if (!(error <= worst)) worst = error;
    ++rows;
  };
  // Most of it in chunks, the end token by token.
  const auto all = std::span<const int32_t>(tokens);
  REQUIRE(fixture.run(*sequence, all.first(kTokens - 4), 48, LogitsFor::all, sink).ok());
  for (size_t i = kTokens - 4; i < kTokens; ++i) {
    REQUIRE(fixture.run(*sequence, all.subspan(i, 1), 48, LogitsFor::all, sink).ok());
  }
  CHECK(rows == kTokens);
  std::printf("%s: relative error %.2e\n", spec.family.c_str(), worst);
  CHECK(worst < kErrorMax);
  CHECK(fixture.model->parts().draft_blocks.size() == static_cast<size_t>(spec.draft_blocks));
}

TEST_CASE("model: llama, tied head, grouped queries") {
  compare({.family = "llama", .layers = 3, .kv_heads = 3});
}

TEST_CASE("model: llama, untied head, one kv head for all, linear scaling") {
  compare({.family = "llama", .heads = 5, .kv_heads = 1, .tied = false, .rope_scaling = "linear",
           .rope_factor = 4.0, .seed = 2});
}

TEST_CASE("model: llama, yarn") {
  compare({.family = "llama", .heads = 4, .kv_heads = 4, .head_dim = 16, .tied = false,
           .rope_dims = 16, .rope_scaling = "yarn", .rope_factor = 4.0,
           .yarn_attention_factor = 1.2, .yarn_original_context = 64, .seed = 3});
}

TEST_CASE("model: llama, rope_freqs tensor and partial rotation") {
  compare({.family = "llama", .head_dim = 16, .rope_dims = 10, .rope_base = 500.0,
           .rope_freqs = true, .seed = 4});
}

TEST_CASE("model: qwen2, biases and half-split rotation") {
  compare({.family = "qwen2", .seed = 5});
}

TEST_CASE("model: qwen3, head norms, heads wider than the stream") {
  compare({.family = "qwen3", .layers = 3, .width = 24, .head_dim = 24, .norm_epsilon = 1e-2,
           .rope_dims = 24, .rope_base = 1000.0, .seed = 6});
}

TEST_CASE("model: qwen35, odd sizes, partial rotation, a draft block") {
  compare({.family = "qwen35", .layers = 4, .head_dim = 24, .tied = false, .rope_dims = 10,
           .draft_blocks = 1, .seed = 7});
}

TEST_CASE("model: qwen35, three DeltaNet layers between attentions") {
  compare({.family = "qwen35", .layers = 8, .width = 33, .kv_heads = 3, .interval = 4,
           .key_heads = 3, .value_heads = 3, .delta_dim = 16, .seed = 8});
}

}  // namespace
}  // namespace tandem_tests
