// What must hold for every request, tried on random ones.
#include <set>
#include <string>

#include "policies/sanitize/sanitize.h"
#include "tests/policies/random_chat.h"
#include "tests/support/catch.h"

using tandem::Json;
namespace policies = tandem::policies;
using policies::RandomChat;
using policies::Sanitized;

namespace {

constexpr uint64_t kRequests = 6000;
constexpr uint64_t kChats = 1500;

Json copy_of_messages(const Json& sent, bool without_thoughts) {
  Json messages = *sent.find("messages");
  for (Json& message : messages.as_array()) {
    if (!without_thoughts) continue;
    message.erase("reasoning");
    message.erase("reasoning_content");
  }
  return messages;
}

Json chat_of(const std::string& arguments_or_empty, Json arguments) {
  if (!arguments_or_empty.empty()) arguments = Json(arguments_or_empty);
  Json function = Json::object({{"name", Json("f")}, {"arguments", std::move(arguments)}});
  Json call = Json::object({{"id", Json("c1")}, {"function", std::move(function)}});
  Json user = Json::object({{"role", Json("user")}, {"content", Json("q")}});
  Json assistant = Json::object({{"role", Json("assistant")}, {"content", Json("")}});
  assistant.set("tool_calls", Json(Json::Array{std::move(call)}));
  Json tool = Json::object({{"role", Json("tool")}, {"tool_call_id", Json("c1")}});
  tool.set("content", Json("r"));
  Json::Array messages{std::move(user), std::move(assistant), std::move(tool)};
  return Json::object({{"messages", Json(std::move(messages))}});
}

Json arguments_sent(Json request, policies::EngineKind engine) {
  const auto outcome = policies::sanitize(std::move(request), *policies::family_profile("qwen3.8"),
                                          policies::default_facts(engine), {});
  const Json& sent = std::get<Sanitized>(outcome).send;
  const Json& call = sent.find("messages")->as_array()[1].find("tool_calls")->as_array()[0];
  return *call.find("function")->find("arguments");
}

const std::string& role_of(const Json& message) { return message.find("role")->as_string(); }

size_t calls_of(const Json& message) {
  const Json* calls = message.find("tool_calls");
  return calls == nullptr ? 0 : calls->as_array().size();
}

// Ids and forms of the calls of one message; adds its ids to `open`.
void require_calls(const Json& message, const policies::ModelProfile& profile, bool as_object,
                   std::set<std::string>& open) {
  for (const Json& call : message.find("tool_calls")->as_array()) {
    const std::string& id = call.find("id")->as_string();
    REQUIRE_FALSE(id.empty());
    REQUIRE(open.insert(id).second);
    if (profile.nine_character_ids) REQUIRE(id.size() == 9);
    const Json& function = *call.find("function");
    REQUIRE(function.find("name")->as_string().find("<|") == std::string::npos);
    const Json& arguments = *function.find("arguments");
    REQUIRE((as_object ? arguments.is_object()
                       : tandem::parse_json(arguments.as_string()).value().is_object()));
  }
}

// What every template accepts: calls and results in pairs, roles where the family takes them.
void require_valid_chat(const Json& sent, const policies::ModelProfile& profile, bool as_object) {
  const Json::Array& messages = sent.find("messages")->as_array();
  std::set<std::string> open;
  bool has_user = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = role_of(messages[i]);
    REQUIRE(role != "developer");
    if (role == "system" && profile.system != policies::SystemPlacement::any) {
      REQUIRE((i == 0 && profile.system == policies::SystemPlacement::leading));
    }
    has_user = has_user || role == "user";
    if (role == "tool") {
      REQUIRE(open.erase(messages[i].find("tool_call_id")->as_string()) == 1);
      continue;
    }
    REQUIRE((open.empty() || role == "system"));  // every call has its result
    if (role == "assistant" && calls_of(messages[i]) > 0) {
      const bool last = i + 1 == messages.size();
      if (profile.one_call_per_message && !last) REQUIRE(calls_of(messages[i]) == 1);
      require_calls(messages[i], profile, as_object, open);
    } else if (role != "system" && i > 0 && profile.alternates && calls_of(messages[i - 1]) == 0) {
      REQUIRE(role != role_of(messages[i - 1]));
    }
  }
  if (profile.needs_user) REQUIRE(has_user);
  REQUIRE((open.empty() || calls_of(messages.back()) > 0));
}

}  // namespace

TEST_CASE("a request that was repaired needs no further repair", "[sanitize]") {
  policies::SanitizeSettings settings;
  settings.tools_through_choice_none = false;  // R18's last step speaks to the engine
  size_t sent = 0;
  for (uint64_t seed = 0; seed < kRequests; ++seed) {
    RandomChat random(seed);
    const policies::ModelProfile profile = random.profile();
    const policies::TargetFacts target = random.target();
    const Json request = random.request();
    const auto first = policies::sanitize(request, profile, target, settings);
    const auto twin = policies::sanitize(request, profile, target, settings);
    REQUIRE(first.index() == twin.index());
    const auto* repaired = std::get_if<Sanitized>(&first);
    if (repaired == nullptr) continue;
    ++sent;
    REQUIRE(repaired->send.dump() == std::get<Sanitized>(twin).send.dump());
    const auto second = policies::sanitize(repaired->send, profile, target, settings);
    INFO("seed " << seed << " family " << profile.family << " engine "
                 << policies::engine_kind_name(target.engine) << "\n"
                 << request.dump());
    REQUIRE(std::holds_alternative<Sanitized>(second));
    REQUIRE(std::get<Sanitized>(second).send.dump() == repaired->send.dump());
    REQUIRE(std::get<Sanitized>(second).thinking == repaired->thinking);
    require_valid_chat(repaired->send, profile, target.engine == policies::EngineKind::own);
  }
  REQUIRE(sent > kRequests / 3);
}

TEST_CASE("a chat that grows keeps the bytes of its earlier turns", "[sanitize]") {
  for (uint64_t seed = 0; seed < kChats; ++seed) {
    RandomChat random(seed);
    const policies::ModelProfile profile = random.profile();
    const policies::TargetFacts target = random.target();
    // R11: this family drops thoughts once another user message follows, as its template does.
    const bool drops = profile.history_thoughts == policies::HistoryThoughts::on_open_call_turns;
    Json::Array messages = random.first_turns();
    Json before = Json::array();
    for (int turn = 0; turn < 6; ++turn) {
      const Json request = Json::object({{"messages", Json(messages)}});
      policies::TargetFacts roomy = target;
      roomy.context_tokens.reset();
      const auto outcome = policies::sanitize(request, profile, roomy, {});
      if (!std::holds_alternative<Sanitized>(outcome)) break;
      const Json now = copy_of_messages(std::get<Sanitized>(outcome).send, drops);
      const Json::Array& list = now.as_array();
      INFO("seed " << seed << " family " << profile.family << "\n"
                   << before.dump() << "\n"
                   << now.dump());
      REQUIRE(list.size() >= before.as_array().size());
      for (size_t i = 0; i < before.as_array().size(); ++i) {
        REQUIRE(list[i].dump() == before.as_array()[i].dump());
      }
      before = now;
      random.grow(messages);
    }
  }
}

TEST_CASE("arguments survive both forms", "[sanitize]") {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    RandomChat random(seed);
    const Json object = random.object(3);
    const std::string text = object.dump();
    const Json kept = arguments_sent(chat_of(text, {}), policies::EngineKind::vllm);
    REQUIRE(kept == Json(text));
    const Json decoded = arguments_sent(chat_of(text, {}), policies::EngineKind::own);
    REQUIRE(decoded == object);
    const Json encoded = arguments_sent(chat_of("", decoded), policies::EngineKind::vllm);
    REQUIRE(tandem::parse_json(encoded.as_string()).value() == object);
  }
}
