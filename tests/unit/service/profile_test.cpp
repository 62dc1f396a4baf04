// Profiles: from a template's answers, the model file and the configuration to facts with sources;
// and the supervisor's part: ready only after the probe, failed when the template refuses.
#include "service/model_profile.h"
#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

protocol::ModelFacts with_template(const std::string& family) {
  protocol::ModelFacts facts;
  facts.has_chat_template = true;
  facts.family = family;
  return facts;
}

// Writes every message; a system message that is not the first is an error.
Result<std::string> leading_only(const policies::ProbeChat& chat) {
  std::string text;
  for (const Json& message : chat.messages.as_array()) {
    const std::string& role = message.find("role")->as_string();
    if (role == "system" && !text.empty()) return make_error(Errc::invalid_argument, "late");
    text += role + message.find("content")->as_string();
  }
  return text;
}

std::string fact(const FoundProfile& found, const std::string& name) {
  const Json json = profile_json(found.facts);
  const Json* value = json.find(name);
  if (value == nullptr) return "(missing)";
  return value->find("value")->as_string() + ", " + value->find("source")->as_string();
}

FoundProfile find(const ModelConfig& model, const protocol::ModelFacts& facts,
                  const SanitizerConfig& sanitizer = {}) {
  auto found = find_profile(model, sanitizer, facts, {.render = leading_only, .answer = {}});
  REQUIRE(found.ok());
  return std::move(found).value();
}

}  // namespace

TEST_CASE("profile: family from the file, facts from the probe, both with their source") {
  const FoundProfile found = find({}, with_template("gemma4"));
  CHECK(fact(found, "family") == "gemma4, model file");
  CHECK(fact(found, "system_messages") == "leading, probe");
  CHECK(found.rules.profile.system == policies::SystemPlacement::leading);
  CHECK(fact(found, "history_thoughts") == "on_open_call_turns, built in");
  CHECK(fact(find({}, with_template("")), "family") == "plain, built in");
}

TEST_CASE("profile: the configuration has the last word") {
  ModelConfig model;
  model.family = "qwen3.5";
  model.system_messages = "none";
  model.thinking = "effort_only";
  model.tool_syntax = "mistral";
  model.alternates = "yes";
  const FoundProfile found = find(model, with_template("gemma4"));
  CHECK(fact(found, "family") == "qwen3.5, configuration");
  CHECK(fact(found, "system_messages") == "none, configuration");
  CHECK(fact(found, "thinking") == "effort_only, configuration");
  CHECK(fact(found, "tool_syntax") == "mistral, configuration");
  CHECK(found.rules.profile.syntax == policies::ToolSyntax::mistral);
  CHECK(found.rules.profile.alternates);
}

TEST_CASE("profile: rows of sampling values come whole, from the table or from the file") {
  auto facts = with_template("qwen2.5");
  facts.sampling = Json::object().set("temp", 0.5).set("top_k", 7).set("top_p", 99.0);
  const FoundProfile from_file = find({.name = "mine"}, facts);
  REQUIRE(from_file.rules.profile.rows.has_value());
  CHECK(from_file.rules.profile.rows->direct.temperature == 0.5);
  CHECK(from_file.rules.profile.rows->direct.top_k == 7);
  CHECK_FALSE(from_file.rules.profile.rows->direct.top_p.has_value());
  CHECK(fact(from_file, "sampling_direct") == "temperature 0.5, top_k 7, model file");
  facts.name = "Qwen2.5 Coder";
  CHECK(find({.name = "mine"}, facts).rules.profile.rows->direct.temperature == 0.7);
  CHECK(fact(find({.name = "mine"}, with_template("")), "sampling_direct") == "neutral, built in");
}

TEST_CASE("profile: a row of the configuration replaces the built-in one of its mode, whole") {
  auto facts = with_template("qwen3.8");
  facts.name = "Qwen3.8 27B";
  ModelConfig model;
  model.sampling_direct = policies::SamplingRow{.temperature = 0.3, .top_k = 5};
  const FoundProfile found = find(model, facts);
  CHECK(fact(found, "sampling_direct") == "temperature 0.3, top_k 5, configuration");
  CHECK(fact(found, "sampling_thinking").ends_with("repetition_penalty 1.0, built in"));
  const policies::SamplingRows& rows = found.rules.profile.rows.value();
  CHECK(rows.direct.temperature == 0.3);
  CHECK_FALSE(rows.direct.presence_penalty.has_value());  // 1.5 in the built-in row: never mixed
  CHECK(rows.thinking.temperature == 1.0);
}

TEST_CASE("profile: rules are switched off for all models and for one") {
  ModelConfig model;
  model.sanitizer_off = {"R23"};
  SanitizerConfig sanitizer;
  sanitizer.off = {"R20"};
  sanitizer.default_max_tokens = 99;
  const auto& settings = find(model, with_template(""), sanitizer).rules.settings;
  CHECK(settings.off[20]);
  CHECK(settings.off[23]);
  CHECK(settings.off.count() == 2);
  CHECK(settings.default_max_tokens == 99);
}

TEST_CASE("profile: no template, no questions; a template that refuses everything is an error") {
  const auto refuse = [](const policies::ProbeChat&) -> Result<std::string> {
    return make_error(Errc::invalid_argument, "no");
  };
  CHECK_FALSE(find_profile({}, {}, with_template(""), {.render = refuse, .answer = {}}).ok());
  CHECK(find_profile({}, {}, protocol::ModelFacts{}, {.render = refuse, .answer = {}}).ok());
}

TEST_CASE("supervisor: a model is ready with its profile, or failed with the reason") {
  World world("leading_system_only 1\n", "template_error 1\n");
  world.config.default_model.thinks_by_default = "yes";
  world.begin();
  REQUIRE(world.until_ready());
  CHECK(world.tenant().chat_rules().profile.system == policies::SystemPlacement::leading);
  CHECK(world.tenant().chat_rules().profile.thinks_by_default);
  CHECK(profile_line(world.tenant().profile_facts()).find("system_messages leading (probe)") !=
        std::string::npos);
  REQUIRE(world.until([&] { return world.state(1) == ModelState::failed; }));
  CHECK(world.status(1).message.find("the template refuses") != std::string::npos);
  CHECK(world.status(1).restarts == 0);
  CHECK(world.status(1).pid == 0);
}

TEST_CASE("supervisor: an engine that never answers the probe is no ready model") {
  World world("", "hang_on_render 1\n");
  world.begin();
  REQUIRE(world.until_ready());
  REQUIRE(world.until([&] { return world.status(1).message == "asks its chat template"; }));
  CHECK(world.state(1) == ModelState::loading);
  world.clock.advance(std::chrono::seconds(61));
  CHECK(world.until([&] { return world.state(1) == ModelState::backoff; }));
  CHECK(world.status(1).message.find("chat template") != std::string::npos);
}

}  // namespace tandem::service
