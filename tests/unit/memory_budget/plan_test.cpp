#include "memory_budget/plan.h"

#include "tests/support/catch.h"

namespace tandem::budget {
namespace {

const PlanInput kInput{.weights_bytes = 1'000'000,
                       .kv_bytes = 64 * 4096,
                       .kv_bytes_per_page = 4096,
                       .recurrent_bytes_per_sequence = 1000,
                       .slots = 4,
                       .workspace_bytes = 50'000,
                       .mask_bytes = 9'000,
                       .tokenizer_bytes = 7'000,
                       .host_bytes = 30'000};

TEST_CASE("plan: terms are named and sum up") {
  const Plan plan = make_plan(kInput);
  int64_t sum = 0;
  for (const PlanTerm& term : plan.terms) sum += term.bytes;
  CHECK(sum == plan.total_bytes);
  CHECK(plan.total_bytes == 1'000'000 + 64 * 4096 + 4000 + 50'000 + 9'000 + 7'000 + 30'000);
  REQUIRE(plan.terms.size() == 8);
  CHECK(plan.terms[1].name == "kv");
  CHECK(plan.terms[2].bytes == 4000);
}

TEST_CASE("plan: the verdict says the largest KV budget that would fit") {
  const int64_t total = make_plan(kInput).total_bytes;
  CHECK(judge_plan(kInput, total).fits);
  CHECK(check_plan(kInput, total).ok());
  const PlanVerdict tight = judge_plan(kInput, total - 1);
  CHECK_FALSE(tight.fits);
  CHECK(tight.kv_bytes_that_fit == 63 * 4096);
  PlanInput smaller = kInput;
  smaller.kv_bytes = tight.kv_bytes_that_fit;
  CHECK(judge_plan(smaller, total - 1).fits);
  CHECK(judge_plan(kInput, 1000).kv_bytes_that_fit == 0);

  const auto refused = check_plan(kInput, total - 1);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::too_large);
  for (const int64_t number : {total, total - 1, int64_t{63 * 4096}}) {
    CHECK(refused.error().message.find(std::to_string(number)) != std::string::npos);
  }
}

TEST_CASE("plan: text and JSON") {
  PlanInput input;
  input.weights_bytes = int64_t{94} << 20;
  input.host_bytes = 512 * 1024;
  const Plan plan = make_plan(input);
  CHECK(plan_text(plan) ==
        "weights 94.0 MiB, kv 0.0 MiB, recurrent_state 0.0 MiB, checkpoints 0.0 MiB, workspace 0.0 MiB, "
        "masks 0.0 MiB, tokenizer 0.0 MiB, host 0.5 MiB; total 94.5 MiB");
  const Json json = plan_to_json(plan);
  CHECK(json.find("total_bytes")->as_integer() == plan.total_bytes);
  CHECK(json.find("terms")->as_array().size() == 8);
}

}  // namespace
}  // namespace tandem::budget
