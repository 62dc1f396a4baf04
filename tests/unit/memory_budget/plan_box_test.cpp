// The verdict over two models on one pool, its exact inverse, and the field report's exchange.
#include "memory_budget/plan_box.h"

#include <cstdint>
#include <random>
#include <string>

#include "tests/support/catch.h"
#include "tests/unit/memory_budget/plan_shapes.h"

namespace tandem::budget {
namespace {

using tandem_tests::gemma4_26b;
using tandem_tests::gpt_oss_20b;
using tandem_tests::qwen35_27b;
using tandem_tests::qwen35moe_35b;

constexpr int64_t kGib = int64_t{1} << 30;

// The field report's box: 121.7 GiB, floor 24 GiB; the 26B beside the 27B.
BoxInput field_box(int64_t available, int64_t optional_kv) {
  return {.host = {.total_bytes = 1217 * kGib / 10,
                   .available_bytes = available,
                   .floor_bytes = 24 * kGib},
          .models = {{.role = Role::default_model,
                      .shape = read_shape(gemma4_26b()).value(),
                      .settings = {.kv_bytes = 24 * kGib, .slots = 8, .context_tokens = 65'536}},
                     {.role = Role::optional_model,
                      .shape = read_shape(qwen35_27b()).value(),
                      .settings = {.kv_bytes = optional_kv, .slots = 4, .context_tokens = 65'536}}}};
}

// What is available before anything is loaded, when both models and 8 GiB of optional KV leave 30.
int64_t field_available() {
  const BoxPlan plan = plan_box(field_box(110 * kGib, 8 * kGib)).value();
  return 110 * kGib + 30 * kGib - plan.available_after;
}

TEST_CASE("plan of the box: the field report's exchange, in its own numbers") {
  const int64_t available = field_available();
  const BoxPlan before = plan_box(field_box(available, 8 * kGib)).value();
  const BoxPlan after = plan_box(field_box(available, 24 * kGib)).value();
  CHECK(before.fits);
  CHECK(before.reasons.empty());
  CHECK(before.available_after == 30 * kGib);
  CHECK_FALSE(after.fits);
  CHECK(after.available_after == 14 * kGib);
  CHECK(after.largest_kv == 14 * kGib);
  CHECK(before.largest_kv == 14 * kGib);
  REQUIRE(after.reasons.size() == 1);
  CHECK(after.reasons[0] == "with everything loaded the host has 14 GiB available, below the "
                            "performance floor of 24 GiB");
  CHECK(exchange_text(kv_exchange(before, after, Role::optional_model)) ==
        "optional KV 8 -> 24 GiB: host available 30 -> 14 GiB, below the performance floor of "
        "24 GiB: refused; largest KV that fits: 14 GiB");
  const BoxPlan largest = plan_box(field_box(available, 14 * kGib)).value();
  CHECK(largest.fits);
  CHECK(exchange_text(kv_exchange(before, largest, Role::optional_model)) ==
        "optional KV 8 -> 14 GiB: host available 30 -> 24 GiB, above the performance floor of "
        "24 GiB: fits");
}

TEST_CASE("plan of the box: a model that runs is not counted twice") {
  const int64_t available = field_available();
  const BoxPlan cold = plan_box(field_box(available, 8 * kGib)).value();
  BoxInput warm = field_box(available, 8 * kGib);
  for (BoxModel& model : warm.models) {
    model.held_bytes = 10 * kGib;
    warm.host.available_bytes -= 10 * kGib;
  }
  const BoxPlan plan = plan_box(warm).value();
  CHECK(plan.available_after == cold.available_after);
  CHECK(plan.largest_kv == cold.largest_kv);
  const PlannedModel& running = *plan.model(Role::default_model);
  CHECK(running.rights_bytes == running.plan.steady_bytes - 10 * kGib);
  // Of the default model's rights what serving alone takes is at most KV, states and workspace.
  CHECK(running.unspent_bytes == running.plan.term("kv") + running.plan.term("workspace"));
}

TEST_CASE("plan of the box: the load peak counts, not only the steady state") {
  // A tiny KV: loading holds buffers that serving does not.
  BoxInput input = field_box(60 * kGib, 2 << 20);
  input.models.erase(input.models.begin());
  input.models[0].settings = {.kv_bytes = 2 << 20, .slots = 1, .context_tokens = 32, .batch_tokens = 1};
  input.models[0].shape.recurrent_bytes = 0;
  input.models[0].shape.row_floats = 1;
  input.models[0].shape.logit_row_floats = 1;
  const BoxPlan plan = plan_box(input).value();
  const ModelPlan& model = plan.models[0].plan;
  REQUIRE(model.load_peak_bytes > model.steady_bytes);
  CHECK(plan.available_at_peak == 60 * kGib - model.load_peak_bytes);
  input.host.available_bytes = input.host.floor_bytes + model.load_peak_bytes;
  CHECK(plan_box(input).value().fits);
  --input.host.available_bytes;
  const BoxPlan refused = plan_box(input).value();
  CHECK_FALSE(refused.fits);
  CHECK(refused.available_after >= input.host.floor_bytes);
  CHECK(refused.reasons.at(0).find("while the optional model loads") == 0);
}

TEST_CASE("plan of the box: the largest KV is the exact inverse") {
  std::mt19937_64 random(20261130);
  const auto pick = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  const Json models[] = {gemma4_26b(), qwen35_27b(), gpt_oss_20b(), qwen35moe_35b()};
  int with_room = 0;
  int without = 0;
  for (int round = 0; round < 300; ++round) {
    BoxInput input;
    input.host.total_bytes = pick(8, 256) * kGib;
    input.host.available_bytes = pick(0, input.host.total_bytes);
    input.host.floor_bytes = pick(0, input.host.total_bytes / 4);
    for (const Role role : {Role::default_model, Role::optional_model}) {
      if (role == Role::default_model && pick(0, 4) == 0) continue;
      input.models.push_back({.role = role,
                              .shape = read_shape(models[pick(0, 3)]).value(),
                              .settings = {.kv_bytes = pick(0, 3) * pick(0, 24 * kGib),
                                           .slots = pick(1, 8),
                                           .context_tokens = pick(1, 70'000),
                                           .batch_tokens = pick(1, 2048)},
                              .held_bytes = pick(0, 3) == 0 ? pick(0, 20 * kGib) : 0});
    }
    const BoxPlan plan = plan_box(input).value();
    BoxModel& optional = input.models.back();
    const ModelPlan& model = plan.models.back().plan;
    REQUIRE(plan.largest_role == Role::optional_model);
    // The verdict itself agrees with the inverse.
    if (model.problem.empty()) REQUIRE(plan.fits == (model.term("kv") <= plan.largest_kv));
    if (plan.largest_kv > 0) {
      ++with_room;
      optional.settings.kv_bytes = plan.largest_kv;
      REQUIRE(plan_box(input).value().fits);
      optional.settings.kv_bytes = plan.largest_kv + model.kv_page_bytes - 1;
      REQUIRE(plan_box(input).value().fits);
      optional.settings.kv_bytes = plan.largest_kv + model.kv_page_bytes;
      REQUIRE_FALSE(plan_box(input).value().fits);
    } else {
      ++without;
      optional.settings.kv_bytes = model.kv_least_bytes();
      REQUIRE_FALSE(plan_box(input).value().fits);
    }
  }
  CHECK(with_room > 50);
  CHECK(without > 50);
}

TEST_CASE("plan of the box: a default model that cannot fit leaves no optional KV") {
  BoxInput input = field_box(30 * kGib, 8 * kGib);
  const BoxPlan plan = plan_box(input).value();
  CHECK_FALSE(plan.fits);
  CHECK(plan.largest_kv == 0);
  CHECK(plan.available_after < 0);
  CHECK(plan.reasons.at(0).find("the host has -") != std::string::npos);
}

TEST_CASE("plan of the box: a host smaller than its floor is refused, not an error") {
  BoxInput input = field_box(0, 8 * kGib);
  input.host = {.total_bytes = kGib / 2, .available_bytes = kGib / 4, .floor_bytes = 4 * kGib};
  const BoxPlan plan = plan_box(input).value();
  CHECK_FALSE(plan.fits);
  CHECK(plan.largest_kv == 0);
}

TEST_CASE("plan of the box: what the neighbour may still take stands beside each model") {
  BoxInput input = field_box(field_available(), 8 * kGib);
  const BoxPlan cold = plan_box(input).value();
  const PlannedModel& main = *cold.model(Role::default_model);
  const PlannedModel& other = *cold.model(Role::optional_model);
  CHECK(main.neighbour_unspent_bytes == other.unspent_bytes);
  CHECK(other.neighbour_unspent_bytes == main.unspent_bytes);
  CHECK(other.neighbour_unspent_bytes == main.plan.term("kv") + main.plan.term("workspace"));
  const Json json = box_plan_to_json(cold);
  const Json& terms = *json.find("models")->as_array()[1].find("terms");
  CHECK(terms.find("neighbour_unspent_rights")->as_integer() == main.unspent_bytes);
  CHECK(terms.find("performance_floor")->as_integer() == 24 * kGib);
  input.models.erase(input.models.begin());
  CHECK(plan_box(input).value().models[0].neighbour_unspent_bytes == 0);
}

TEST_CASE("plan of the box: the largest KV of either model") {
  const BoxInput input = field_box(field_available(), 8 * kGib);
  const BoxPlan plan = plan_box(input, Role::default_model).value();
  CHECK(plan.largest_role == Role::default_model);
  BoxInput changed = input;
  changed.models[0].settings.kv_bytes = plan.largest_kv;
  CHECK(plan_box(changed).value().fits);
  changed.models[0].settings.kv_bytes += plan.models[0].plan.kv_page_bytes;
  CHECK_FALSE(plan_box(changed).value().fits);
  BoxInput alone = input;
  alone.models.pop_back();
  CHECK(plan_box(alone, Role::optional_model).error().path == "models");
}

TEST_CASE("plan of the box: an exchange of other budgets, and why it is refused") {
  const int64_t available = field_available();
  BoxInput more = field_box(available, 8 * kGib);
  more.models[1].settings.slots = 16;
  const BoxPlan before = plan_box(field_box(available, 8 * kGib)).value();
  const KvExchange slots = kv_exchange(before, plan_box(more).value(), Role::optional_model);
  CHECK(exchange_text(slots).find("optional slots 4 -> 16: host available 30 -> 28.2 GiB, above") == 0);
  CHECK_FALSE(slots.gives_back());
  const KvExchange back = kv_exchange(plan_box(more).value(), before, Role::optional_model);
  CHECK(back.gives_back());
  // Too little to serve: the reason stands in the sentence, and nobody may have it.
  const KvExchange none =
      kv_exchange(before, plan_box(field_box(available, 1 << 20)).value(), Role::optional_model);
  CHECK(exchange_text(none).find("cannot serve") != std::string::npos);
  CHECK_FALSE(none.fits);
  CHECK_FALSE(none.possible());
  const KvExchange huge =
      kv_exchange(before, plan_box(field_box(available, 60 * kGib)).value(), Role::optional_model);
  CHECK_FALSE(huge.possible());
  CHECK(kv_exchange(before, plan_box(field_box(available, 24 * kGib)).value(), Role::optional_model).possible());
}

TEST_CASE("plan of the box: what is no box is an error") {
  BoxInput input = field_box(60 * kGib, 8 * kGib);
  input.host.available_bytes = input.host.total_bytes + 1;
  CHECK(plan_box(input).error().path == "host");
  input = field_box(60 * kGib, 8 * kGib);
  input.models[1].role = Role::default_model;
  CHECK(plan_box(input).error().path == "models");
  CHECK(plan_box({.host = input.host}).error().path == "models");
  input = field_box(60 * kGib, -1);
  const auto plan = plan_box(input);
  CHECK(plan.error().path == "optional.kv");
  CHECK(plan.error().message.find("optional: ") == 0);
}

TEST_CASE("plan of the box: JSON names every term") {
  const Json json = box_plan_to_json(plan_box(field_box(field_available(), 24 * kGib)).value());
  CHECK(json.find("verdict")->as_string() == "refused");
  CHECK(json.find("largest_that_fits")->as_integer() == 14 * kGib);
  CHECK(json.find("host")->find("available_after")->as_integer() == 14 * kGib);
  CHECK(json.find("host")->find("floor")->as_integer() == 24 * kGib);
  CHECK(json.find("reasons")->as_array().size() == 1);
  REQUIRE(json.find("models")->as_array().size() == 2);
  const Json& optional = json.find("models")->as_array()[1];
  CHECK(optional.find("role")->as_string() == "optional");
  for (const char* name :
       {"weights", "kv", "kv_full", "kv_sliding", "kv_draft", "recurrent_state", "draft_head",
        "workspace", "graphs", "tokenizer", "host", "load_peak", "post_load_peak"}) {
    INFO(name);
    REQUIRE(optional.find("terms")->find(name) != nullptr);
    CHECK(optional.find("terms")->find(name)->is_integer());
  }
}

TEST_CASE("plan of the box: sizes are rounded down") {
  CHECK(size_text(0) == "0 B");
  CHECK(size_text(1023) == "1023 B");
  CHECK(size_text(640 * 1024) == "640 KiB");
  CHECK(size_text((1 << 20) + (1 << 19)) == "1.5 MiB");
  CHECK(size_text(24 * kGib - 1) == "23.9 GiB");
  CHECK(size_text(24 * kGib) == "24 GiB");
  CHECK(size_text(-kGib) == "-1 GiB");
  CHECK(size_text(-kGib * 5 / 4) == "-1.3 GiB");
  CHECK(size_text(-(kGib * 5 - 1)) == "-5 GiB");
}

}  // namespace
}  // namespace tandem::budget
