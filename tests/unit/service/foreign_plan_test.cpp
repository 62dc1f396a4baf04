// The memory plan of engines of others: from a file, from the configuration, from a directory.
#include "service/foreign_plan.h"

#include <filesystem>
#include <fstream>

#include "memory_budget/plan_box.h"
#include "service/model_figures.h"
#include "tests/support/catch.h"
#include "tests/unit/memory_budget/plan_shapes.h"

namespace tandem::service {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

Result<Json> describe(const DescribeQuestion& question) {
  if (question.file == "gemma") return tandem_tests::gemma4_26b();
  if (question.file == "qwen") return tandem_tests::qwen35_27b();
  return make_error(Errc::io, question.file + ": no such file");
}

ModelConfig llama(const std::string& file) {
  ModelConfig model;
  model.engine = "llama-server";
  model.file = file;
  model.context_tokens = 32768;
  return model;
}

ModelConfig vllm() {
  ModelConfig model;
  model.name = "big";
  model.engine = "vllm";
  model.repository = "org/model";
  model.weights_bytes = 15 * kGiB;
  model.kv_bytes = 8 * kGiB;
  return model;
}

budget::ModelPlan plan(const ModelConfig& model) {
  const BoxModelFacts facts = model_facts(budget::Role::default_model, model);
  const auto shape = shape_of(facts, "engine", describe);
  INFO((shape.ok() ? std::string() : shape.error().message));
  REQUIRE(shape.ok());
  const auto out = budget::plan_model(*shape, facts.settings);
  REQUIRE(out.ok());
  return *out;
}

TEST_CASE("llama-server on a file: that file's weights and cache, in the bits that are stored") {
  ModelConfig own = llama("gemma");
  own.engine = "tandem";
  const budget::ModelPlan ours = plan(own);
  const budget::ModelPlan theirs = plan(llama("gemma"));
  CHECK(theirs.term("weights") == ours.term("weights"));
  CHECK(theirs.term("kv") == ours.term("kv"));
  ModelConfig quantised = llama("gemma");
  quantised.arguments = {"-ctk", "q8_0", "-ctv", "q8_0"};
  const int64_t half = plan(quantised).term("kv");
  CHECK(half > ours.term("kv") * 52 / 100);
  CHECK(half < ours.term("kv") * 54 / 100);
  // More KV than every slot's context is never taken there.
  ModelConfig more = llama("gemma");
  more.kv_bytes = 200 * kGiB;
  CHECK(plan(more).term("kv") == theirs.term("kv"));
  ModelConfig told = llama("gemma");
  told.workspace_bytes = 5 * kGiB;
  told.load_peak_bytes = 90 * kGiB;
  CHECK(plan(told).term("workspace") == 5 * kGiB);
  CHECK(plan(told).load_peak_bytes == 90 * kGiB);
  CHECK(plan(llama("qwen")).term("recurrent_state") > 0);
}

TEST_CASE("what a token takes, for the command line of llama-server") {
  const auto gemma = read_cache_facts(llama("gemma"), "engine", describe);
  REQUIRE(gemma.ok());
  CHECK(gemma->bytes_per_token > 0);
  CHECK(gemma->window_bytes_per_slot > 0);
  CHECK(gemma->state_bytes_per_slot == 0);
  CHECK(read_cache_facts(llama("qwen"), "engine", describe)->state_bytes_per_slot > 0);
  CHECK(read_cache_facts(llama("qwen"), "engine", nullptr).error().code == Errc::unavailable);
  CHECK(read_cache_facts(llama("other"), "engine", describe).error().code == Errc::io);
  // A plan of these bytes and the command of these bytes say the same: all slots at full context, just so.
  ModelConfig model = llama("gemma");
  model.kv_bytes = plan(model).term("kv");
  const auto command = engine_command({.model = model, .port = 1, .cache = *gemma});
  REQUIRE(command.ok());
  CHECK(command->expected.at("context_tokens") == "32768");
}

TEST_CASE("vllm: the configured terms, and start values where nothing is said") {
  const budget::ModelPlan out = plan(vllm());
  CHECK(out.term("weights") == 15 * kGiB);
  CHECK(out.term("kv") == 8 * kGiB);
  CHECK(out.term("workspace") == 3 * kGiB);
  CHECK(out.load_peak_bytes == 30 * kGiB);
  CHECK(out.steady_bytes >= 26 * kGiB);
  CHECK(out.steady_bytes < 26 * kGiB + kGiB / 8);
  ModelConfig told = vllm();
  told.workspace_bytes = 6 * kGiB;
  told.load_peak_bytes = 17 * kGiB;
  CHECK(plan(told).term("workspace") == 6 * kGiB);
  CHECK(plan(told).load_peak_bytes == 17 * kGiB);
  CHECK(plan(told).peak_bytes() == plan(told).steady_bytes);
}

TEST_CASE("vllm: the largest KV is the exact inverse") {
  BoxFacts facts{.engine = "engine",
                 .host = {.total_bytes = 120 * kGiB, .available_bytes = 60 * kGiB, .floor_bytes = 24 * kGiB},
                 .models = {model_facts(budget::Role::default_model, vllm())}};
  const auto box = budget::plan_box(describe_box(facts, describe).value()).value();
  CHECK(box.fits);
  facts.models[0].settings.kv_bytes = box.largest_kv;
  CHECK(budget::plan_box(describe_box(facts, describe).value()).value().fits);
  facts.models[0].settings.kv_bytes = box.largest_kv + (int64_t{1} << 20);
  CHECK_FALSE(budget::plan_box(describe_box(facts, describe).value()).value().fits);
  // The same facts from tandemd plan the same.
  const auto again = read_box_facts(box_facts_json(facts));
  REQUIRE(again.ok());
  CHECK(again->models[0].foreign.value().weights_bytes == 15 * kGiB);
  CHECK(box_facts_json(*again) == box_facts_json(facts));
}

TEST_CASE("vllm: weights of a directory are the sum of their files") {
  std::string pattern = "/tmp/tandem-plan-XXXXXX";
  REQUIRE(::mkdtemp(pattern.data()) != nullptr);
  for (const char* name : {"model-1.safetensors", "model-2.safetensors", "config.json"}) {
    std::ofstream(pattern + "/" + name) << std::string(1000, 'x');
  }
  CHECK(directory_weights_bytes(pattern) == 2000);
  CHECK(directory_weights_bytes("org/model") == 0);
  ModelConfig model = vllm();
  model.weights_bytes = 0;
  model.repository = pattern;
  CHECK(plan(model).term("weights") == 2000);
  std::filesystem::remove_all(pattern);
  const auto gone = shape_of(model_facts(budget::Role::default_model, model), "engine", describe);
  CHECK(gone.error().message.find("holds no weights") != std::string::npos);
}

TEST_CASE("a start is planned by the terms; a model elsewhere needs nothing here") {
  CHECK(start_profile(vllm(), "engine", describe).peak_bytes >= 30 * kGiB);
  CHECK(start_profile(vllm(), "engine", nullptr).peak_bytes >= 30 * kGiB);
  ModelConfig far;
  far.engine = "remote";
  CHECK_FALSE(is_planned(far));
  CHECK(start_profile(far, "engine", describe).peak_bytes == budget::kHostBytes);
}

}  // namespace
}  // namespace tandem::service
