// Loading a model with either loader: what the ledger holds, and each of its reservations refused.
#include "engine/run/loaded_model.h"

#include <cstdlib>

#include "tests/support/catch.h"

namespace tandem::engine {
namespace {

using budget::Tag;

EngineOptions options_of(const std::string& load) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  EngineOptions options;
  options.model = std::string(root == nullptr ? "." : root) + "/tests/models/tiny-hybrid-q8_0.gguf";
  options.name = "tiny";
  options.context_tokens = 256;
  options.slots = 2;
  options.batch_tokens = 64;
  options.threads = 1;
  options.load = load;
  return options;
}

GgufFile file_of(const EngineOptions& options) {
  const LoadMode mode = options.load == "direct" ? LoadMode::direct : LoadMode::mapped;
  return GgufFile::open(options.model, {.load = mode}).value();
}

TEST_CASE("load: the ledger holds the plan, tag by tag, and is limited to it") {
  const SystemClock clock;
  for (const char* load : {"direct", "mapped"}) {
    const EngineOptions options = options_of(load);
    GgufFile file = file_of(options);
    const auto made = LoadedModel::load(file, options, clock);
    REQUIRE(made.ok());
    const LoadedModel& loaded = **made;
    const auto plan = LoadedModel::plan_input(*loaded.model, loaded.text->memory_bytes(), options);
    REQUIRE(plan.ok());
    const budget::Ledger& ledger = loaded.ledger;
    CHECK(ledger.held(Tag::weights) == plan->weights_bytes);
    CHECK(ledger.held(Tag::kv) <= plan->kv_bytes);
    CHECK(ledger.held(Tag::recurrent_state) == 2 * plan->recurrent_bytes_per_sequence);
    CHECK(ledger.held(Tag::workspace) == plan->workspace_bytes + plan->mask_bytes);
    CHECK(ledger.held(Tag::tokenizer) == plan->tokenizer_bytes);
    CHECK(ledger.held_total() + plan->host_bytes <= budget::make_plan(*plan).total_bytes);
    for (const Tag tag : {Tag::weights, Tag::kv, Tag::recurrent_state, Tag::workspace, Tag::tokenizer}) {
      CHECK(ledger.limit(tag) - ledger.held(tag) < plan->kv_bytes_per_page);
    }
    CHECK(loaded.weights_mapped_bytes == (std::string(load) == "mapped" ? plan->weights_bytes : 0));
    CHECK(loaded.store->pool().untouched_bytes() == 0);  // committed
    CHECK(loaded.step->untouched_bytes() == 0);
    // A budget that the memory limit does not allow is refused by the same plan.
    EngineOptions limited = options;
    limited.memory_limit_bytes = budget::make_plan(*plan).total_bytes;
    GgufFile again = file_of(limited);
    const auto second = LoadedModel::load(again, limited, clock);
    REQUIRE(second.ok());
    const Budgets same = {.kv_bytes = plan->kv_bytes, .slots = 2, .batch_tokens = 64};
    CHECK((*second)->plan_budgets(same).ok());
    Budgets more = same;
    more.kv_bytes += int64_t{1} << 20;
    CHECK((*second)->plan_budgets(more).error().code == Errc::too_large);
    more = same;
    more.slots = 3;
    CHECK((*second)->plan_budgets(more).error().code == Errc::too_large);
  }
}

TEST_CASE("load: each reservation that is refused is an error that names it") {
  const SystemClock clock;
  for (const char* load : {"direct", "mapped"}) {
    for (const Tag tag : {Tag::weights, Tag::kv, Tag::recurrent_state, Tag::workspace, Tag::tokenizer}) {
      EngineOptions options = options_of(load);
      options.fail_tag = tag;
      GgufFile file = file_of(options);
      const auto made = LoadedModel::load(file, options, clock);
      REQUIRE_FALSE(made.ok());
      CHECK(made.error().code == Errc::exhausted);
      CHECK(made.error().message.find(budget::tag_name(tag)) != std::string::npos);
    }
  }
}

TEST_CASE("load: without commit memory is reserved and not touched") {
  const SystemClock clock;
  EngineOptions options = options_of("mapped");
  options.commit = 0;
  GgufFile file = file_of(options);
  const auto made = LoadedModel::load(file, options, clock);
  REQUIRE(made.ok());
  CHECK((*made)->store->pool().untouched_bytes() == (*made)->store->pool().bytes());
  CHECK((*made)->store->spare_state_bytes() == 0);
  CHECK((*made)->step->untouched_bytes() > 0);
}

}  // namespace
}  // namespace tandem::engine
