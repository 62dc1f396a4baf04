// The tiny requests of a loaded model: what fails is switched off, and told.
#include "service/model_trial.h"

#include <functional>

#include "tests/support/catch.h"

namespace tandem::service {
namespace {

using policies::ModelProfile;
using policies::SystemPlacement;
using policies::ThinkingSwitch;
using policies::ToolSyntax;

struct World {
  ModelConfig configured;
  policies::SanitizeSettings settings;
  ModelProfile profile = policies::family_profile("qwen3.8").value();
  std::vector<policies::ProfileFact> facts = {{"system_messages", "any", policies::FactSource::probe},
                                              {"thinking", "enable_thinking", policies::FactSource::probe},
                                              {"tool_syntax", "qwen-xml", policies::FactSource::probe},
                                              {"effort", "low_medium_xhigh", policies::FactSource::probe}};
  int asked = 0;

  World() {
    profile.system = SystemPlacement::any;
    profile.needs_user = false;
  }
  void run(const AskModel& ask) {
    const AskModel counted = [&](const protocol::PrepareChat& chat, protocol::Submit submit) {
      ++asked;
      return ask(chat, std::move(submit));
    };
    try_model(configured, settings, counted, profile, facts);
  }
  [[nodiscard]] std::string fact(const std::string& name) const {
    std::string found = "(missing)";
    for (const auto& one : facts) {
      if (one.name == name) found = one.value;
    }
    return found;
  }
};

std::string role_at(const protocol::PrepareChat& chat, size_t index) {
  return chat.messages.as_array().at(index).find("role")->as_string();
}
bool has_role(const protocol::PrepareChat& chat, const std::string& role, size_t from = 0) {
  for (size_t i = from; i < chat.messages.as_array().size(); ++i) {
    if (role_at(chat, i) == role) return true;
  }
  return false;
}
Result<TrialAnswer> no(const char* why) { return make_error(Errc::invalid_argument, why); }
Result<TrialAnswer> hello() { return TrialAnswer{"Hello", ""}; }
bool is_off(const protocol::PrepareChat& chat) {
  const Json* flag = chat.template_args.find("enable_thinking");
  return flag != nullptr && *flag == Json(false);
}

}  // namespace

TEST_CASE("trial: a model that does it all keeps its facts") {
  World world;
  world.run([](const protocol::PrepareChat&, const protocol::Submit&) { return hello(); });
  for (const char* name : {"runs_late_system", "runs_system_only", "runs_tools", "runs_tool_history",
                           "title_without_thinking", "runs_title", "runs_effort"}) {
    INFO(name);
    CHECK(world.fact(name) == "yes");
  }
  CHECK(world.asked == 7);
  CHECK(world.profile.system == SystemPlacement::any);
  CHECK(world.profile.thinking_switch == ThinkingSwitch::enable_thinking);
  CHECK(world.profile.tool_turns);
  CHECK(world.profile.syntax == ToolSyntax::qwen_xml);
}

TEST_CASE("trial: what a model refuses is worked around, and told") {
  World world;
  world.run([](const protocol::PrepareChat& chat, const protocol::Submit&) {
    if (has_role(chat, "system", 1)) return no("late");
    if (!has_role(chat, "user")) return no("no user");
    if (!chat.tools.is_null()) return no("tools");
    if (has_role(chat, "tool")) return no("tool turns");
    const Json* word = chat.template_args.find("reasoning_effort");
    if (word != nullptr) return no("effort");
    return hello();
  });
  CHECK(world.profile.system == SystemPlacement::leading);
  CHECK(world.fact("system_messages") == "leading");
  CHECK(world.fact("runs_late_system") == "no: late; folded into the user's turns");
  CHECK(world.profile.needs_user);
  CHECK(world.fact("runs_system_only") == "no: no user; sent as the user's");
  CHECK(world.profile.syntax == ToolSyntax::plain);
  CHECK(world.fact("tool_syntax") == "plain");
  CHECK(world.fact("runs_tools") == "no: tools; left out, with a warning");
  CHECK_FALSE(world.profile.tool_turns);
  CHECK(world.fact("runs_tool_history") == "no: tool turns; written as text");
  CHECK(world.profile.effort_scale == policies::EffortScale::none);
  CHECK(world.fact("runs_effort") == "no: effort; the words are left out, with a warning");
  CHECK(world.fact("runs_title") == "yes");
}

TEST_CASE("trial: an empty answer to a late system message counts as a refusal") {
  World world;
  world.run([](const protocol::PrepareChat& chat, const protocol::Submit&) -> Result<TrialAnswer> {
    return has_role(chat, "system") && has_role(chat, "user") ? TrialAnswer{"\n", ""} : hello();
  });
  CHECK(world.profile.system == SystemPlacement::none);
}

TEST_CASE("trial: thinking that cannot be switched off gets room instead") {
  World world;
  int64_t title_tokens = 0;
  int64_t reserved = 0;
  world.run([&](const protocol::PrepareChat& chat,
                const protocol::Submit& submit) -> Result<TrialAnswer> {
    title_tokens = std::max(title_tokens, submit.max_tokens);
    if (submit.max_tokens == 40 + 512) reserved = submit.answer_tokens_reserved;
    return TrialAnswer{"Budget", is_off(chat) ? "still" : ""};
  });
  CHECK(world.profile.thinking_switch == ThinkingSwitch::effort_only);
  CHECK(world.fact("thinking") == "effort_only");
  CHECK(world.fact("title_without_thinking") == "no: it thinks all the same; it always thinks");
  CHECK(title_tokens == 40 + 512);
  CHECK(reserved == 40);
}

TEST_CASE("trial: the configuration stays, and what nothing helps against is only told") {
  World world;
  world.configured.system_messages = "any";
  world.configured.thinking = "enable_thinking";
  world.configured.tool_syntax = "qwen-xml";
  world.run([](const protocol::PrepareChat& chat, const protocol::Submit&) -> Result<TrialAnswer> {
    if (has_role(chat, "system", 1) || !chat.tools.is_null()) return no("no");
    return TrialAnswer{"", "hm"};
  });
  CHECK(world.profile.system == SystemPlacement::any);
  CHECK(world.fact("system_messages") == "any");
  CHECK(world.fact("runs_late_system") == "no: no");
  CHECK(world.profile.syntax == ToolSyntax::qwen_xml);
  CHECK(world.profile.thinking_switch == ThinkingSwitch::enable_thinking);
  CHECK(world.fact("title_without_thinking") == "no: empty");
  CHECK(world.fact("runs_title") == "no: empty");
}

TEST_CASE("trial: a slow engine is asked no further, and nothing is concluded") {
  World world;
  world.run([](const protocol::PrepareChat&, const protocol::Submit&) -> Result<TrialAnswer> {
    return make_error(Errc::cancelled, "no whole answer in time");
  });
  CHECK(world.asked == 1);
  CHECK(world.profile.system == SystemPlacement::any);
  CHECK(world.fact("runs_title") == "not tried: no whole answer in time");
}

}  // namespace tandem::service
