// Terms of the two big models as exact bytes, done by hand (docs/memory.md has the same sums).
#include "memory_budget/plan_model.h"

#include <cstdint>
#include <random>

#include "tests/support/catch.h"
#include "tests/unit/memory_budget/plan_shapes.h"

namespace tandem::budget {
namespace {

using tandem_tests::gemma4_26b;
using tandem_tests::gpt_oss_20b;
using tandem_tests::qwen35_27b;
using tandem_tests::qwen35moe_35b;
using tandem_tests::with_key;

constexpr int64_t kGib = int64_t{1} << 30;
constexpr int64_t kMib = int64_t{1} << 20;

ModelPlan plan_of(const Json& described, const ModelSettings& settings) {
  return plan_model(read_shape(described).value(), settings).value();
}

TEST_CASE("plan of a model: the 27B as optional model, byte by byte") {
  const ModelPlan plan = plan_of(
      qwen35_27b(),
      {.kv_bytes = 8 * kGib, .slots = 4, .context_tokens = 65'536, .batch_tokens = 512});
  CHECK(plan.term("weights") == 15'465'875'456);
  CHECK(plan.term("kv") == 8'589'934'592);
  CHECK(plan.term("kv_full") == 8'589'934'592);
  CHECK(plan.term("kv_sliding") == 0);
  CHECK(plan.kv_page_bytes == 2 * kMib);
  CHECK(plan.term("recurrent_state") == 4 * 156'893'184);
  CHECK(plan.term("draft_head") == 0);
  CHECK(plan.term("graphs") == 0);
  CHECK(plan.term("host") == kHostBytes + 51'392);  // the header of the file
  // 4 sequences of 65,536 tokens at 64 KiB: 16 GiB
  CHECK(plan.kv_useful_bytes == 16 * kGib);
  int64_t sum = 0;
  for (const PlanTerm& term : plan.terms) sum += term.bytes;
  CHECK(sum == plan.steady_bytes);
  CHECK(plan.load_peak_bytes == 15'465'875'456 + plan.term("host") + 16 * kMib);
  CHECK(plan.load_peak_bytes < plan.term("weights") / 100 * 105);
  CHECK(plan.peak_bytes() == plan.steady_bytes);
  CHECK(plan.problem.empty());
}

TEST_CASE("plan of a model: the 26B as default model, byte by byte") {
  const ModelPlan plan = plan_of(
      gemma4_26b(),
      {.kv_bytes = 24 * kGib, .slots = 8, .context_tokens = 65'536, .batch_tokens = 512});
  CHECK(plan.term("weights") == 14'423'538'808);
  // Windows: 1,024 + 512 - 1 tokens in whole pages are 1,536, times 204,800 bytes, times 8 slots.
  CHECK(plan.term("kv_sliding") == int64_t{1'536} * 204'800 * 8);
  CHECK(plan.term("kv_sliding") == 2'516'582'400);
  // The rest in pages of 32 x 20,480 bytes: (25,769,803,776 - 2,516,582,400) / 655,360 = 35,481.6.
  CHECK(plan.kv_page_bytes == 655'360);
  CHECK(plan.term("kv_full") == 35'481 * int64_t{655'360});
  CHECK(plan.term("kv") == plan.term("kv_full") + plan.term("kv_sliding"));
  CHECK(plan.term("kv") <= 24 * kGib);
  CHECK(plan.term("recurrent_state") == 0);
}

TEST_CASE("plan of a model: one sequence of 262,144 tokens") {
  const ModelSettings settings{.slots = 1, .context_tokens = 262'144, .batch_tokens = 1};
  const ModelPlan gemma = plan_of(gemma4_26b(), settings);
  CHECK(gemma.term("kv_full") == 5 * kGib);
  CHECK(gemma.term("kv_sliding") == 200 * kMib);
  CHECK(plan_of(qwen35_27b(), settings).term("kv") == 16 * kGib);
  // gpt-oss has 131,072 tokens of context at most, 24,576 bytes each, and 3 MiB of windows.
  const ModelPlan oss = plan_of(gpt_oss_20b(), settings);
  CHECK(oss.term("kv_full") == 3 * kGib);
  CHECK(oss.term("kv_sliding") == 3 * kMib);
}

TEST_CASE("plan of a model: a draft head costs its block, its KV and states to go back to") {
  Json described = with_key(with_key(qwen35_27b(), "block_count", 65), "nextn_predict_layers", 1);
  Json blocks = Json::array();
  for (int b = 0; b < 65; ++b) blocks.push_back(b == 64 ? 238'983'168 : 0);
  described.find("tensors")->set("bytes_by_block", std::move(blocks));
  const ModelSettings quiet{.slots = 1, .context_tokens = 262'144};
  const ModelPlan without = plan_of(described, quiet);
  CHECK(without.term("weights") == 15'465'875'456 - 238'983'168);
  CHECK(without.term("draft_head") == 238'983'168);
  CHECK(without.term("kv_draft") == 0);
  ModelSettings settings = quiet;
  settings.draft_tokens = 3;
  const ModelPlan with = plan_of(described, settings);
  CHECK(with.term("draft_head") == 238'983'168 + 4 * int64_t{156'893'184});
  CHECK(with.term("kv_full") == 16 * kGib);
  CHECK(with.term("kv_draft") == 1 * kGib);
  CHECK(with.kv_page_bytes == (65'536 + 4'096) * 32);
}

TEST_CASE("plan of a model: a KV budget below the windows and one page cannot serve") {
  const ModelSettings settings{.kv_bytes = 2 * kGib, .slots = 8, .context_tokens = 65'536};
  const ModelPlan plan = plan_of(gemma4_26b(), settings);
  CHECK(plan.kv_least_bytes() == 2'516'582'400 + 655'360);
  CHECK(plan.problem.find("8 slots need 2517237760 at least") != std::string::npos);
  ModelSettings enough = settings;
  enough.kv_bytes = plan.kv_least_bytes();
  CHECK(plan_of(gemma4_26b(), enough).problem.empty());
  --enough.kv_bytes;
  CHECK_FALSE(plan_of(gemma4_26b(), enough).problem.empty());
}

TEST_CASE("plan of a model: what the engine says of itself replaces the formulas") {
  Json described = qwen35_27b();
  described.find("engine")->set(
      "figures", Json::object({{"page_tokens", 32},
                               {"page_bytes", 2'097'152},
                               {"recurrent_bytes", 156'893'184},
                               {"workspace_bytes", 143'595'776},
                               {"mask_bytes", 16 << 20},
                               {"tokenizer_bytes", 12'345}}));
  const ModelPlan plan = plan_of(described, {});
  CHECK(plan.term("workspace") == 143'595'776);
  CHECK(plan.term("masks") == 16 << 20);
  CHECK(plan.term("tokenizer") == 12'345);
  // The formula that stands in for it is near: within 5 %.
  const int64_t formula = plan_of(qwen35_27b(), {}).term("workspace");
  CHECK(formula > 143'595'776 / 100 * 95);
  CHECK(formula < 143'595'776 / 100 * 105);
}

TEST_CASE("plan of a model: settings out of range and terms past the cap are errors") {
  const ModelShape shape = read_shape(qwen35_27b()).value();
  CHECK(plan_model(shape, {.slots = 0}).error().path == "slots");
  CHECK(plan_model(shape, {.slots = 1025}).error().path == "slots");
  CHECK(plan_model(shape, {.kv_bytes = -1}).error().path == "kv");
  CHECK(plan_model(shape, {.kv_bytes = INT64_MAX}).error().path == "kv");
  CHECK(plan_model(shape, {.context_tokens = 0}).error().path == "context_tokens");
  CHECK(plan_model(shape, {.batch_tokens = 1 << 20}).error().path == "batch_tokens");
  // 4,096 value heads of 256 x 4,096 in 3,072 layers: 2^50 bytes a sequence fit, 1,024 of them do not.
  Json large = qwen35_27b();
  large = with_key(std::move(large), "block_count", 4096);
  large = with_key(std::move(large), "ssm.state_size", 4096);
  large = with_key(std::move(large), "ssm.inner_size", 1 << 20);
  large = with_key(std::move(large), "ssm.time_step_rank", 4096);
  const auto sum = plan_model(read_shape(large).value(),
                              {.slots = 1024, .context_tokens = 1 << 24, .draft_tokens = 64});
  if (!sum.ok()) CHECK(sum.error().code == Errc::too_large);
  Json wide = with_key(with_key(qwen35_27b(), "attention.head_count_kv", 4096),
                       "attention.head_count", 4096);
  wide = with_key(with_key(std::move(wide), "context_length", int64_t{1} << 30),
                  "attention.key_length", 4096);
  const auto kv = plan_model(read_shape(with_key(std::move(wide), "attention.value_length", 4096)).value(),
                             {.slots = 1024, .context_tokens = 1 << 24});
  REQUIRE_FALSE(kv.ok());
  CHECK(kv.error().code == Errc::too_large);
  CHECK(kv.error().path == "kv_full");
}

// More of anything never needs less.
TEST_CASE("plan of a model: steady and peak grow with every setting") {
  std::mt19937_64 random(20261130);
  const auto pick = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  const Json models[] = {gemma4_26b(), qwen35_27b(), gpt_oss_20b(), qwen35moe_35b()};
  for (int round = 0; round < 400; ++round) {
    const ModelShape shape = read_shape(models[pick(0, 3)]).value();
    ModelSettings settings{.kv_bytes = pick(0, 1) * pick(1, 64 * kGib),
                           .slots = pick(1, 32),
                           .context_tokens = pick(1, 300'000),
                           .batch_tokens = pick(1, 8192)};
    const ModelPlan before = plan_model(shape, settings).value();
    // With a fixed KV budget slots move bytes from pages to windows, so the sum may round down by
    // less than a page.
    const int64_t slack = settings.kv_bytes > 0 ? before.kv_page_bytes : 0;
    switch (pick(0, 3)) {
      case 0: settings.slots += pick(1, 8); break;
      case 1: settings.context_tokens += pick(1, 100'000); break;
      case 2: settings.batch_tokens += pick(1, 4096); break;
      default:
        if (settings.kv_bytes > 0) settings.kv_bytes += pick(1, 8 * kGib);
        break;
    }
    const ModelPlan after = plan_model(shape, settings).value();
    if (!before.problem.empty() || !after.problem.empty()) continue;
    REQUIRE(after.steady_bytes >= before.steady_bytes - slack);
    REQUIRE(after.peak_bytes() >= before.peak_bytes() - slack);
    REQUIRE(before.peak_bytes() >= before.steady_bytes);
    if (settings.kv_bytes > 0) {
      REQUIRE(after.term("kv") <= settings.kv_bytes);
      REQUIRE(settings.kv_bytes - after.term("kv") < after.kv_page_bytes);
    }
  }
}

}  // namespace
}  // namespace tandem::budget
