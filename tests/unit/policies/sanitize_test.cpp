// What the worked cases do not reach: switches, caps, and the parts that are not chat messages.
#include "policies/sanitize/sanitize.h"

#include <string>

#include "policies/sanitize/answer_check.h"
#include "policies/sanitize/language_guard.h"
#include "policies/sanitize/receipt.h"
#include "policies/sanitize/schema_check.h"
#include "tests/support/catch.h"

using tandem::Json;
namespace policies = tandem::policies;
using policies::EngineKind;
using policies::Rejection;
using policies::Sanitized;

namespace {

Json json(const std::string& text) { return tandem::parse_json(text).value(); }

policies::SanitizeOutcome run(const std::string& request, const char* family, EngineKind engine,
                              const policies::SanitizeSettings& settings = {}) {
  return policies::sanitize(json(request), *policies::family_profile(family),
                            policies::default_facts(engine), settings);
}

Sanitized sent(const std::string& request, const char* family, EngineKind engine,
               const policies::SanitizeSettings& settings = {}) {
  return std::get<Sanitized>(run(request, family, engine, settings));
}

std::string refused(const std::string& request, const char* family = "qwen3.8") {
  const auto outcome = run(request, family, EngineKind::vllm);
  const auto* rejection = std::get_if<Rejection>(&outcome);
  return rejection == nullptr ? "" : rejection->path;
}

const std::string kTitle = R"({"messages":[{"role":"user","content":"q"}],"max_tokens":40)";
const std::string kLate = R"({"messages":[{"role":"system","content":"A"},{"role":"user",)"
                          R"("content":"q"},{"role":"assistant","content":"a"},)"
                          R"({"role":"system","content":"B"},{"role":"user","content":"r"}]})";

}  // namespace

TEST_CASE("a rule that is off leaves its matter alone", "[sanitize]") {
  policies::SanitizeSettings settings;
  REQUIRE(sent(kLate, "qwen3.8", EngineKind::own).send.find("messages")->as_array().size() == 4);
  settings.off.set(4);
  REQUIRE(
      sent(kLate, "qwen3.8", EngineKind::own, settings).send.find("messages")->as_array().size() ==
      5);
  REQUIRE_FALSE(sent(kTitle + "}", "qwen3.8", EngineKind::own).thinking);
  settings.off.set(20);
  REQUIRE(sent(kTitle + "}", "qwen3.8", EngineKind::own, settings).thinking);
  settings.off.set(26);
  REQUIRE(sent(kTitle + "}", "qwen3.8", EngineKind::own, settings).send.find("top_p") == nullptr);
}

TEST_CASE("calls and results become text where the template writes neither", "[sanitize]") {
  const Json request = json(
      R"({"messages":[{"role":"user","content":"q"},
          {"role":"assistant","content":"Let me see.","tool_calls":[
            {"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},
            {"id":"b","type":"function","function":{"name":"g","arguments":""}}]},
          {"role":"tool","tool_call_id":"a","content":"r1"},
          {"role":"tool","tool_call_id":"b","content":[{"type":"text","text":"r2"}]}]})");
  policies::ModelProfile profile = *policies::family_profile("gemma3");
  profile.tool_turns = false;
  const auto facts = policies::default_facts(EngineKind::own);
  const auto first = std::get<Sanitized>(policies::sanitize(request, profile, facts, {}));
  const Json& messages = *first.send.find("messages");
  REQUIRE(messages.as_array().size() == 3);  // this family alternates: the results are one turn
  REQUIRE(messages.as_array()[1].dump() ==
          R"({"role":"assistant","content":"Let me see.\n<tool_call>\n{\"name\":\"f\",\"arguments\":)"
          R"({\"x\":1}}\n</tool_call>\n<tool_call>\n{\"name\":\"g\",\"arguments\":{}}\n</tool_call>"})");
  REQUIRE(messages.as_array()[2].dump() ==
          R"({"role":"user","content":"<tool_response>\nr1\n</tool_response>\n\n)"
          R"(<tool_response>\nr2\n</tool_response>"})");
  const auto again = std::get<Sanitized>(policies::sanitize(first.send, profile, facts, {}));
  REQUIRE(again.send.dump() == first.send.dump());
  profile.tool_turns = true;
  const auto kept = std::get<Sanitized>(policies::sanitize(request, profile, facts, {}));
  REQUIRE(kept.send.find("messages")->as_array().size() == 4);
}

TEST_CASE("a model that thinks in spite of its switch gets room, and no word", "[sanitize]") {
  policies::ModelProfile profile = *policies::family_profile("qwen3.5");
  profile.thinking_switch = policies::ThinkingSwitch::effort_only;
  const auto facts = policies::default_facts(EngineKind::own);
  const auto title = std::get<Sanitized>(policies::sanitize(json(kTitle + "}"), profile, facts, {}));
  REQUIRE(title.thinking);
  REQUIRE(title.send.find("max_tokens")->as_integer() == 40 + 512);
  REQUIRE(title.duties.requested_max_tokens == 40);
  REQUIRE(title.send.find("reasoning_effort") == nullptr);
  REQUIRE(title.send.find("chat_template_kwargs") == nullptr);
}

TEST_CASE("R28: a second try only where it may come out differently", "[sanitize]") {
  const std::string korean = "\xEC\x82\xAC\xEC\x8B\xA4";
  const std::string foreign = korean + "\xE9\x99\x88";
  const auto retry_of = [&](const std::string& fields, const policies::SanitizeSettings& settings,
                            bool can_retry, const std::string& finish) {
    const Json request = json(R"({"messages":[{"role":"user","content":")" + korean + "\"}]" + fields + "}");
    const policies::ModelProfile profile = *policies::family_profile("plain");
    const auto facts = policies::default_facts(EngineKind::own);
    const auto sanitized = std::get<Sanitized>(policies::sanitize(request, profile, facts, settings));
    policies::AnswerVerdict verdict;
    policies::check_language({request, sanitized, profile, facts, settings, false},
                             {foreign, "", false, finish}, can_retry, verdict);
    REQUIRE(verdict.warnings.size() == 1);
    REQUIRE(verdict.retry.has_value() == (verdict.action == policies::AnswerAction::retry_once));
    if (verdict.retry.has_value()) REQUIRE(verdict.retry->dump() == sanitized.send.dump());
    return verdict.retry_rule == 28;
  };
  REQUIRE(retry_of("", {}, true, "stop"));
  REQUIRE_FALSE(retry_of("", {}, false, "stop"));    // content is out
  REQUIRE_FALSE(retry_of("", {}, true, "length"));   // it would be cut again
  REQUIRE_FALSE(retry_of(R"(,"temperature":0)", {}, true, "stop"));
  REQUIRE_FALSE(retry_of(R"(,"seed":1)", {}, true, "stop"));
  policies::SanitizeSettings settings;
  settings.foreign_script_retry = false;
  REQUIRE_FALSE(retry_of("", settings, true, "stop"));
}

TEST_CASE("no system role at all: every system message is folded", "[sanitize]") {
  policies::ModelProfile profile = *policies::family_profile("qwen3.8");
  profile.system = policies::SystemPlacement::none;
  const auto outcome =
      policies::sanitize(json(kLate), profile, policies::default_facts(EngineKind::own), {});
  const Json& messages = *std::get<Sanitized>(outcome).send.find("messages");
  REQUIRE(messages.as_array().size() == 3);
  REQUIRE(messages.as_array()[0].find("content")->as_string() ==
          "<system-reminder>\nA\n</system-reminder>\n\nq");
}

TEST_CASE("the limit of choices holds before anything is allocated", "[sanitize]") {
  REQUIRE(refused(kTitle + R"(,"n":9000000000})") == "n");
  REQUIRE(refused(kTitle + R"(,"n":0})") == "n");
  const Sanitized many =
      sent(kTitle + R"(,"n":3,"seed":9223372036854775807})", "qwen3.8", EngineKind::ollama);
  REQUIRE(many.fanout.seeds.size() == 3);
  REQUIRE(many.fanout.seeds[1] == INT64_MIN);
}

TEST_CASE("refusals name the field", "[sanitize]") {
  REQUIRE(refused("[]").empty());
  REQUIRE(refused("{}") == "messages");
  REQUIRE(refused(R"({"messages":[7]})") == "messages[0]");
  REQUIRE(refused(R"({"messages":[{"role":"user","content":[{"type":"audio"}]}]})") ==
          "messages[0].content[0].type");
  REQUIRE(refused(kTitle + R"(,"temperature":2.5})") == "temperature");
  REQUIRE(refused(kTitle + R"(,"top_logprobs":2})") == "top_logprobs");
  REQUIRE(refused(kTitle + R"(,"reasoning_effort":"turbo"})") == "reasoning_effort");
  REQUIRE(refused(kTitle + R"(,"max_completion_tokens":0})") == "max_completion_tokens");
  REQUIRE(refused(kTitle + R"(,"response_format":{"type":"xml"}})") == "response_format.type");
  REQUIRE(refused(kTitle + R"(,"stop":[7]})") == "stop");
}

TEST_CASE("a budget that the engine cannot take is still a wish to think", "[sanitize]") {
  const std::string request = kTitle + R"(,"thinking_token_budget":16})";
  const Sanitized vllm = sent(request, "qwen3.8", EngineKind::vllm);
  REQUIRE(vllm.thinking);
  REQUIRE(vllm.send.find("thinking_token_budget") == nullptr);
  REQUIRE(vllm.receipt.back().rule > 0);
  const Sanitized own = sent(request, "qwen3.8", EngineKind::own);
  REQUIRE(own.send.find("thinking_token_budget")->as_integer() == 16);
}

TEST_CASE("a property called pattern is no pattern", "[sanitize]") {
  const std::string tool =
      R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object",)"
      R"("properties":{"pattern":{"type":"array","minItems":1,"maxItems":5000,)"
      R"("items":{"type":"string","pattern":"^a$","maxLength":2000}}}}}}]})";
  const Sanitized result = sent(kTitle + tool, "qwen3.8", EngineKind::llama_server);
  const std::string schema = result.send.find("tools")->dump();
  REQUIRE(schema.find(R"("pattern":{"type":"array","items":{"type":"string","maxLength":2000}})") !=
          std::string::npos);
  REQUIRE(result.duties.validate_arguments);
}

TEST_CASE("schemas of answers", "[sanitize]") {
  const auto ok = [](const char* value, const char* schema) {
    return policies::satisfies_schema(json(value), json(schema));
  };
  CHECK(ok("{\"a\":1.0}", R"({"properties":{"a":{"type":"integer"}},"required":["a"]})"));
  CHECK_FALSE(ok("{\"a\":1.5}", R"({"properties":{"a":{"type":"integer"}}})"));
  CHECK_FALSE(ok("{\"b\":1}", R"({"properties":{"a":{}},"additionalProperties":false})"));
  CHECK_FALSE(ok("[1,2]", R"({"items":{"type":"string"}})"));
  CHECK(ok("[1,\"x\"]", R"({"prefixItems":[{"type":"integer"}],"items":{"type":"string"}})"));
  CHECK_FALSE(ok("\"\xED\x95\x9C\"", R"({"minLength":2})"));
  CHECK_FALSE(ok("3", R"({"oneOf":[{"minimum":1},{"maximum":5}]})"));
  CHECK(ok("{\"n\":{\"n\":null}}",
           R"({"$ref":"#/$defs/T","$defs":{"T":{"properties":{"n":{"anyOf":[{"type":"null"},)"
           R"({"$ref":"#/$defs/T"}]}}}}})"));
  CHECK(ok("1", R"({"$ref":"#"})"));  // refers to itself without end
  CHECK_FALSE(ok("\"c\"", R"({"enum":["a","b"]})"));
  CHECK_FALSE(ok("[1,1]", R"({"uniqueItems":true})"));
}

TEST_CASE("an answer of thoughts only", "[sanitize]") {
  const Json request = json(kTitle + R"(,"reasoning_effort":"low"})");
  const auto profile = *policies::family_profile("qwen3.8");
  const auto facts = policies::default_facts(EngineKind::vllm);
  const policies::SanitizeSettings settings;
  const Sanitized asked =
      std::get<Sanitized>(policies::sanitize(request, profile, facts, settings));
  const policies::AnswerContext context{request, asked, profile, facts, settings};
  const auto verdict = policies::check_answer(context, {"\n", "thought", false, "length"});
  REQUIRE(verdict.action == policies::AnswerAction::give);  // the caller wanted thoughts
  REQUIRE(verdict.warnings.at(0).code == "reasoning_exhausted_budget");
  REQUIRE(verdict.empty_after_reasoning);

  const Json plain = json(R"({"messages":[{"role":"user","content":"q"}],"max_tokens":4000})");
  const Sanitized first = std::get<Sanitized>(policies::sanitize(plain, profile, facts, settings));
  policies::AnswerContext second{plain, first, profile, facts, settings};
  const auto once = policies::check_answer(second, {"", "thought", false, "stop"});
  REQUIRE(once.action == policies::AnswerAction::retry_once);
  REQUIRE(once.retry->find("top_p")->as_double() == 0.8);  // the whole row of the other mode
  second.is_retry = true;
  const auto again = policies::check_answer(second, {"", "thought", false, "stop"});
  REQUIRE(again.action == policies::AnswerAction::give);
  REQUIRE(again.warnings.at(0).code == "empty_answer");
}

TEST_CASE("a structured answer may repeat a key of its own: the last value counts", "[sanitize]") {
  const auto profile = *policies::family_profile("qwen3.8");
  const auto facts = policies::default_facts(EngineKind::own);
  const policies::SanitizeSettings settings;
  const auto refused = [&](const std::string& format, const char* answer) {
    const Json request =
        json(R"({"messages":[{"role":"user","content":"q"}],"max_tokens":40,"response_format":)" + format + "}");
    const Sanitized sanitized = std::get<Sanitized>(policies::sanitize(request, profile, facts, settings));
    return !policies::check_answer({request, sanitized, profile, facts, settings}, {answer, "", false, "stop"})
                .warnings.empty();
  };
  const char* any = R"({"type":"json_object"})";
  CHECK_FALSE(refused(any, R"({"a":{"b":1,"b":[2]}})"));
  CHECK(refused(any, R"({"a":1,"a":2)"));
  const char* counts = R"({"type":"json_schema","json_schema":{"name":"s","schema":{"type":"object",
      "additionalProperties":{"type":"integer"}}}})";
  CHECK_FALSE(refused(counts, R"({"a":1,"b":2,"a":3})"));
  CHECK_FALSE(refused(counts, R"({"a":"x","a":3})"));
  CHECK(refused(counts, R"({"a":3,"a":"x"})"));
}

TEST_CASE("foreign scripts", "[sanitize]") {
  const auto spans = [](const char* answer, const char* user) {
    return policies::foreign_script_in_korean(answer, user).spans;
  };
  const std::string han = "\xE9\x99\x88\xE8\xBF\xB0";     // two Han characters
  const std::string hangul = "\xEC\x82\xAC\xEC\x8B\xA4";  // two syllables
  CHECK(spans((hangul + han + hangul).c_str(), "") == std::vector<std::string>{han});
  CHECK(spans((hangul + "(" + han + ")").c_str(), "").empty());       // a gloss
  CHECK(spans((hangul + " (" + han + ")").c_str(), "").size() == 1);  // not directly behind
  CHECK(spans((hangul + "(" + han).c_str(), "").size() == 1);         // never closed
  CHECK(spans(("a `" + han + "` b").c_str(), "").empty());
  CHECK(spans(("a ` b " + han).c_str(), "").size() == 1);
  CHECK(spans(("```\n" + han).c_str(), "").empty());  // a fence that stays open
  CHECK(spans(han.c_str(), ("x" + han + "y").c_str()).empty());
  CHECK(spans("12 \xE2\x91\xA0 \xCE\xB1 caf\xC3\xA9 \xE3\x80\x8C\xE3\x80\x8D", "").empty());
}

TEST_CASE("the receipt as a header", "[sanitize]") {
  const Sanitized result = sent(kTitle + ",\"x\\ny\":1}", "qwen3.8", EngineKind::own);
  const std::string line = policies::compact_receipt(result.receipt);
  CHECK(line.find("R27=param_dropped:x_y") != std::string::npos);
  CHECK(line.find("R20") != std::string::npos);
  CHECK(line.find('\n') == std::string::npos);
  const std::string cut = policies::compact_receipt(result.receipt, 20);
  CHECK(cut.size() <= 20);
  CHECK(cut.substr(cut.size() - 3) == "...");
  CHECK(policies::receipt_json(result.receipt).as_array().size() == result.receipt.size());
  CHECK(policies::rule_number("R32") == 32);
  for (const char* name : {"R0", "R33", "R", "20", "R1x", "R01"}) {
    CHECK_FALSE(policies::rule_number(name).has_value());
  }
}
