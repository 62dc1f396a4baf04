// Kind `request`: what is sent for a request, or how it is refused.
#include <algorithm>
#include <regex>
#include <set>

#include "tests/policies/case_check.h"

namespace tandem::policies {
namespace {

std::string rule_name(int rule) { return "R" + std::to_string(rule); }

// The rules that wrote on a key, or the area of the key where none did.
std::string rule_of_key(const Sanitized& result, std::string_view key) {
  std::set<int> rules;
  for (const ReceiptEntry& entry : result.receipt) {
    if (entry.key == key) rules.insert(entry.rule);
  }
  std::string names;
  for (int rule : rules) names += (names.empty() ? "" : "+") + rule_name(rule);
  if (!names.empty()) return names;
  return key == "messages" ? "R1-R11" : "R17-R32";
}

void check_reject(const Json& expected, const SanitizeOutcome& outcome, Differences& out) {
  const Rejection* rejection = std::get_if<Rejection>(&outcome);
  if (rejection == nullptr) {
    differ(out, "R1-R32", expected, &std::get<Sanitized>(outcome).send);
    return;
  }
  const Json got = Json::object({{"status", Json(rejection->status)},
                                 {"type", Json(rejection->type)},
                                 {"param", Json(rejection->path)},
                                 {"code", Json(rejection->code)}});
  if (!only_known_keys(expected, {"status", "type", "param", "code"}, "reject", out)) return;
  for (const auto& [key, value] : expected.as_object()) {
    if (!same_value(value, *got.find(key))) {
      differ(out, rule_name(rejection->rule), expected, &got);
      return;
    }
  }
}

void check_send(const Json& expected, const Sanitized& result, Differences& out) {
  if (const Json* send = expected.find("send")) {
    for (const auto& [key, value] : send->as_object()) {
      const Json* got = result.send.find(key);
      if (got == nullptr || !same_value(value, *got)) {
        differ(out, rule_of_key(result, key), Json::object({{key, value}}), got);
      }
    }
  }
  if (const Json* absent = expected.find("absent")) {
    for (const Json& key : absent->as_array()) {
      const Json* got = result.send.find(key.as_string());
      if (got != nullptr) {
        differ(out, rule_of_key(result, key.as_string()), Json("no " + key.as_string()), got);
      }
    }
  }
}

std::vector<Json> duties_of(const Sanitized& result) {
  const GatewayDuties& duties = result.duties;
  std::vector<Json> list;
  const std::pair<bool, const char*> words[] = {
      {duties.parse_tool_calls, "parse_tool_calls_from_content"},
      {duties.validate_arguments, "validate_arguments_with_original_schema"},
      {duties.keep_first_tool_call_only, "keep_first_tool_call_only"},
      {duties.validate_content, "validate_content_against_response_format"},
      {duties.retry_with_schema_without_tools, "retry_with_response_format_without_tools"},
      {duties.record_usage, "record_usage"},
  };
  for (const auto& [holds, word] : words) {
    if (holds) list.emplace_back(word);
  }
  if (!duties.stop_on_content.empty()) {
    Json::Array stop;
    for (const std::string& text : duties.stop_on_content) stop.emplace_back(text);
    list.push_back(Json::object({{"apply_stop_to_content", Json(std::move(stop))}}));
  }
  if (duties.requested_max_tokens.has_value()) {
    list.push_back(Json::object({{"requested_max_tokens", Json(*duties.requested_max_tokens)}}));
  }
  return list;
}

void check_duties(const Json& expected, const Sanitized& result, Differences& out) {
  const std::vector<Json> got = duties_of(result);
  const Json shown(Json::Array(got.begin(), got.end()));
  const Json::Array& wanted = expected.as_array();
  const bool all = std::all_of(wanted.begin(), wanted.end(), [&](const Json& duty) {
    return std::any_of(got.begin(), got.end(),
                       [&](const Json& one) { return same_value(duty, one); });
  });
  if (!all || (wanted.empty() && !got.empty())) differ(out, "R18-R32", expected, &shown);
}

void check_fanout(const Json* expected, const Sanitized& result, Differences& out) {
  const Fanout& fanout = result.fanout;
  Json::Array seeds;
  for (int64_t seed : fanout.seeds) seeds.emplace_back(seed);
  const Json got = Json::object({{"count", Json(fanout.count)},
                                 {"copies", Json(fanout.copies)},
                                 {"seeds", Json(std::move(seeds))}});
  const Json once = Json::object({{"count", Json(1)}, {"copies", Json(1)}});
  const Json& wanted = expected == nullptr ? once : *expected;
  if (!only_known_keys(wanted, {"count", "copies", "seeds"}, "fanout", out)) return;
  for (const auto& [key, value] : wanted.as_object()) {
    if (!same_value(value, *got.find(key))) {
      differ(out, "R30", wanted, &got);
      return;
    }
  }
}

// What must hold for every request: the same bytes twice, nothing left to do, a complete receipt.
void check_always(const Json& request, const CaseSetting& setting, const Sanitized& result,
                  Differences& out) {
  const SanitizeOutcome second =
      sanitize(request, setting.profile, setting.target, setting.settings);
  const Sanitized* repeated = std::get_if<Sanitized>(&second);
  if (repeated == nullptr || repeated->send.dump() != result.send.dump()) {
    out.push_back({"two runs", result.send.dump(), "other bytes"});
  }
  SanitizeSettings settings = setting.settings;
  settings.tools_through_choice_none = false;
  const SanitizeOutcome first = sanitize(request, setting.profile, setting.target, settings);
  const Json sent = std::get<Sanitized>(first).send;
  const SanitizeOutcome again = sanitize(sent, setting.profile, setting.target, settings);
  const Sanitized* settled = std::get_if<Sanitized>(&again);
  if (settled == nullptr || settled->send.dump() != sent.dump()) {
    out.push_back({"idempotence", sent.dump(),
                   settled == nullptr ? std::get<Rejection>(again).message : settled->send.dump()});
  }
  std::set<std::string> named;
  for (const ReceiptEntry& entry : result.receipt) {
    if (entry.rule < 1 || entry.rule >= kRules) out.push_back({"receipt", "a rule", entry.code});
    named.insert(entry.key);
  }
  std::set<std::string> keys;
  for (const auto& member : request.as_object()) keys.insert(member.first);
  for (const auto& member : result.send.as_object()) keys.insert(member.first);
  for (const std::string& key : keys) {
    const Json* before = request.find(key);
    const Json* after = result.send.find(key);
    const bool equal = before != nullptr && after != nullptr && *before == *after;
    if (!equal && named.count(key) == 0) out.push_back({"receipt", "an entry for " + key, "none"});
  }
}

}  // namespace

// Constraints of the calls in a list of messages; shared with the streams.
void check_call_ids(const Json& messages, const Json& constraints, Differences& out) {
  const Json* pattern = constraints.find("tool_call_id_regex");
  const auto checked = [&](const Json* id) {
    const std::string text = id != nullptr && id->is_string() ? id->as_string() : "";
    const bool fits =
        pattern == nullptr || std::regex_search(text, std::regex(pattern->as_string()));
    if (text.empty() || !fits) differ(out, "R8", Json("a call id of the right form"), id);
    return text;
  };
  for (const Json& message : messages.as_array()) {
    if (const Json* id = message.find("tool_call_id")) checked(id);
    const Json* calls = message.find("tool_calls");
    if (calls == nullptr) continue;
    std::set<std::string> seen;
    for (const Json& call : calls->as_array()) {
      const std::string id = checked(call.find("id"));
      if (!seen.insert(id).second) differ(out, "R8", Json("unique call ids"), calls);
    }
  }
}

namespace {

void check_pairing(const Json& messages, const Json& expected, Differences& out) {
  Json::Array pairs;
  const Json* calls = nullptr;
  for (const Json& message : messages.as_array()) {
    const std::string& role = message.find("role")->as_string();
    if (role == "assistant" || role == "user") calls = message.find("tool_calls");
    if (role != "tool") continue;
    Json name;
    for (const Json& call : calls == nullptr ? Json::Array() : calls->as_array()) {
      const Json* id = call.find("id");
      if (id != nullptr && *id == *message.find("tool_call_id")) {
        name = *call.find("function")->find("name");
      }
    }
    Json::Array pair{name, *message.find("content")};
    pairs.emplace_back(std::move(pair));
  }
  const Json got(std::move(pairs));
  if (!same_value(expected, got)) differ(out, "R8", expected, &got);
}

void check_arguments(const Json& messages, const Json& type, Differences& out) {
  for (const Json& message : messages.as_array()) {
    const Json* calls = message.find("tool_calls");
    if (calls == nullptr) continue;
    for (const Json& call : calls->as_array()) {
      const Json* arguments = call.find("function")->find("arguments");
      Json value = arguments == nullptr ? Json() : *arguments;
      if (value.is_string()) {
        Result<Json> parsed = parse_json(value.as_string());
        value = parsed.ok() ? std::move(parsed).value() : Json();
      }
      if (Json(value.type_name()) != type) differ(out, "R9", type, arguments);
    }
  }
}

bool begins_with(const Json& messages, const Json& prefix) {
  const Json::Array& list = messages.as_array();
  const Json::Array& wanted = prefix.as_array();
  return list.size() >= wanted.size() &&
         std::equal(wanted.begin(), wanted.end(), list.begin(), same_value);
}

void check_constraints(const Json& constraints, const Sanitized& result, Differences& out) {
  if (!only_known_keys(
          constraints,
          {"tool_call_ids_unique_per_message", "tool_call_id_nonempty", "tool_call_id_regex",
           "pairing", "arguments_parse_to", "not_rejected", "deterministic", "prefix_stable_with"},
          "constraints", out)) {
    return;
  }
  const Json& messages = *result.send.find("messages");
  check_call_ids(messages, constraints, out);
  if (const Json* pairing = constraints.find("pairing")) check_pairing(messages, *pairing, out);
  if (const Json* type = constraints.find("arguments_parse_to")) {
    check_arguments(messages, *type, out);
  }
  const Json* prefix = constraints.find("prefix_stable_with");
  if (prefix != nullptr && !begins_with(messages, *prefix)) differ(out, "R5", *prefix, &messages);
}

}  // namespace

void check_request_case(const Json& test_case, Differences& out) {
  const Json& input = *test_case.find("input");
  const Json& expected = *test_case.find("expected");
  if (!only_known_keys(input, {"request", "target", "policy"}, "input", out) ||
      !only_known_keys(expected,
                       {"send", "absent", "reject", "fanout", "gateway", "warn", "constraints"},
                       "expected", out)) {
    return;
  }
  const std::optional<CaseSetting> setting = read_setting(test_case, out);
  const Json* request = input.find("request");
  if (!setting.has_value() || request == nullptr) return;
  const SanitizeOutcome outcome =
      sanitize(*request, setting->profile, setting->target, setting->settings);
  if (const Json* reject = expected.find("reject")) {
    check_reject(*reject, outcome, out);
    return;
  }
  const Sanitized* result = std::get_if<Sanitized>(&outcome);
  if (result == nullptr) {
    const Rejection& rejection = std::get<Rejection>(outcome);
    out.push_back({rule_name(rejection.rule), "the request is sent",
                   rejection.path + ": " + rejection.message});
    return;
  }
  check_send(expected, *result, out);
  check_fanout(expected.find("fanout"), *result, out);
  if (const Json* duties = expected.find("gateway")) check_duties(*duties, *result, out);
  if (const Json* codes = expected.find("warn")) {
    check_codes(*codes, warning_codes(result->receipt), "R1-R32", out);
  }
  const Json* constraints = expected.find("constraints");
  if (constraints != nullptr && !constraints->is_null()) {
    check_constraints(*constraints, *result, out);
  }
  check_always(*request, *setting, *result, out);
}

}  // namespace tandem::policies
