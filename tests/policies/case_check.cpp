#include "tests/policies/case_check.h"

#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <set>

namespace tandem::policies {
namespace {

bool same(const Json& expected, const Json& got, bool in_function, std::string_view key) {
  if (expected.is_number() && got.is_number()) {
    if (expected.is_integer() && got.is_integer()) return expected == got;
    return expected.as_double() == got.as_double();
  }
  if (in_function && key == "arguments" && expected.is_string() && got.is_string()) {
    const Result<Json> left = parse_json(expected.as_string());
    const Result<Json> right = parse_json(got.as_string());
    if (left.ok() && right.ok()) return same(*left, *right, false, "");
  }
  if (expected.is_array() && got.is_array()) {
    const Json::Array& left = expected.as_array();
    const Json::Array& right = got.as_array();
    return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                      [](const Json& a, const Json& b) { return same(a, b, false, ""); });
  }
  if (expected.is_object() && got.is_object()) {
    if (expected.as_object().size() != got.as_object().size()) return false;
    return std::all_of(
        expected.as_object().begin(), expected.as_object().end(), [&](const Json::Member& member) {
          const Json* other = got.find(member.first);
          return other != nullptr && same(member.second, *other, key == "function", member.first);
        });
  }
  return expected == got;
}

bool read_bool(const Json& value, bool& out) {
  if (!value.is_bool()) return false;
  out = value.as_bool();
  return true;
}

bool read_count(const Json& value, int64_t& out) {
  if (!value.is_integer()) return false;
  out = value.as_integer();
  return true;
}

bool read_target_key(std::string_view key, const Json& value, TargetFacts& target) {
  if (key == "tool_parser") return read_bool(value, target.tool_parser);
  if (key == "thinking_budget") return read_bool(value, target.thinking_budget);
  if (key == "grammar_after_reasoning") return read_bool(value, target.grammar_after_reasoning);
  if (key == "supports_n") return read_bool(value, target.supports_n);
  if (key == "server_defaults")
    return value.is_object();  // what an operator set is never relied on
  if (key == "prompt_tokens") return read_count(value, target.prompt_tokens);
  if (key == "margin") return read_count(value, target.margin_tokens);
  int64_t context = 0;
  if (key != "n_ctx" || !read_count(value, context)) return false;
  target.context_tokens = context;
  return true;
}

bool read_row(const Json& value, SamplingRow& row) {
  if (!value.is_object()) return false;
  for (const auto& [key, number] : value.as_object()) {
    if (!number.is_number()) return false;
    if (key == "temperature") {
      row.temperature = number.as_double();
    } else if (key == "top_p") {
      row.top_p = number.as_double();
    } else if (key == "top_k" && number.is_integer()) {
      row.top_k = number.as_integer();
    } else if (key == "min_p") {
      row.min_p = number.as_double();
    } else if (key == "presence_penalty") {
      row.presence_penalty = number.as_double();
    } else if (key == "repetition_penalty") {
      row.repetition_penalty = number.as_double();
    } else {
      return false;
    }
  }
  return true;
}

// null: none on file; one row; or a row for each mode.
bool read_preset(const Json& value, ModelProfile& profile) {
  profile.rows.reset();
  if (value.is_null()) return true;
  SamplingRows rows;
  const Json* thinking = value.find("thinking");
  const Json* direct = value.find("non_thinking");
  if (thinking != nullptr || direct != nullptr) {
    const size_t expected = (thinking != nullptr ? 1U : 0U) + (direct != nullptr ? 1U : 0U);
    if (value.as_object().size() != expected) return false;
    if (thinking != nullptr && !read_row(*thinking, rows.thinking)) return false;
    if (direct != nullptr && !read_row(*direct, rows.direct)) return false;
  } else {
    if (!read_row(value, rows.thinking)) return false;
    rows.direct = rows.thinking;
  }
  profile.rows = rows;
  return true;
}

bool read_policy_key(std::string_view key, const Json& value, CaseSetting& setting) {
  SanitizeSettings& settings = setting.settings;
  if (key == "short_call_limit") return read_count(value, settings.short_call_limit_tokens);
  if (key == "answer_reserve") return read_count(value, settings.answer_reserve_tokens);
  if (key == "unavoidable_reasoning_reserve") {
    return read_count(value, settings.unavoidable_reasoning_reserve_tokens);
  }
  if (key == "default_max_tokens") return read_count(value, settings.default_max_tokens);
  if (key == "max_grammar_repetition") return read_count(value, settings.grammar_repetition_max);
  if (key == "preset") return read_preset(value, setting.profile);
  if (key == "alternate") return read_bool(value, setting.profile.alternates);
  if (key != "system" || !value.is_string()) return false;
  if (value.as_string() != "any" && value.as_string() != "leading") return false;
  setting.profile.system =
      value.as_string() == "any" ? SystemPlacement::any : SystemPlacement::leading;
  return true;
}

}  // namespace

bool same_value(const Json& expected, const Json& got) { return same(expected, got, false, ""); }

void differ(Differences& out, std::string rule, const Json& expected, const Json* got) {
  out.push_back({std::move(rule), expected.dump(), got == nullptr ? "(absent)" : got->dump()});
}

bool only_known_keys(const Json& object, std::initializer_list<std::string_view> known,
                     std::string_view where, Differences& out) {
  if (!object.is_object()) {
    out.push_back({"case", std::string(where) + " as an object", object.dump()});
    return false;
  }
  for (const auto& [key, value] : object.as_object()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      out.push_back({"case", "a known key in " + std::string(where), key});
      return false;
    }
  }
  return true;
}

void check_codes(const Json& expected, const std::vector<std::string>& got, std::string rule,
                 Differences& out) {
  Json list = Json::array();
  for (const std::string& code : got) list.push_back(Json(code));
  const Json::Array& wanted = expected.as_array();
  const bool all = std::all_of(wanted.begin(), wanted.end(), [&](const Json& code) {
    return code.is_string() && std::find(got.begin(), got.end(), code.as_string()) != got.end();
  });
  if (!all || (wanted.empty() && !got.empty())) differ(out, std::move(rule), expected, &list);
}

std::vector<std::string> warning_codes(const std::vector<ReceiptEntry>& receipt) {
  std::vector<std::string> codes;
  for (const ReceiptEntry& entry : receipt) {
    if (!entry.code.empty()) codes.push_back(entry.code);
  }
  return codes;
}

std::optional<CaseSetting> read_setting(const Json& test_case, Differences& out) {
  const std::string& family = test_case.find("family")->as_string();
  std::optional<ModelProfile> profile = family_profile(family);
  const Json& input = *test_case.find("input");
  const Json* target = input.find("target");
  const Json* name = target == nullptr ? nullptr : target->find("engine");
  const std::optional<EngineKind> engine =
      name != nullptr && name->is_string() ? engine_kind(name->as_string()) : std::nullopt;
  if (!profile.has_value() || !engine.has_value()) {
    out.push_back({"case", "a known family and engine", family});
    return std::nullopt;
  }
  CaseSetting setting{*std::move(profile), default_facts(*engine), {}};
  for (const auto& [key, value] : target->as_object()) {
    if (key != "engine" && !read_target_key(key, value, setting.target)) {
      out.push_back({"case", "a known target key", key});
      return std::nullopt;
    }
  }
  const Json* policy = input.find("policy");
  if (policy == nullptr || policy->is_null()) return setting;
  if (!policy->is_object()) {
    out.push_back({"case", "a policy object", policy->dump()});
    return std::nullopt;
  }
  for (const auto& [key, value] : policy->as_object()) {
    if (!read_policy_key(key, value, setting)) {
      out.push_back({"case", "a known policy key", key});
      return std::nullopt;
    }
  }
  return setting;
}

Differences check_case(const Json& test_case) {
  Differences out;
  if (!only_known_keys(test_case,
                       {"id", "kind", "family", "input", "expected", "area", "note", "source"},
                       "the case", out)) {
    return out;
  }
  for (std::string_view key : {"id", "kind", "family"}) {
    const Json* value = test_case.find(key);
    if (value == nullptr || !value->is_string()) {
      out.push_back({"case", "a string", std::string(key)});
      return out;
    }
  }
  const Json* input = test_case.find("input");
  const Json* expected = test_case.find("expected");
  if (input == nullptr || !input->is_object() || expected == nullptr || !expected->is_object()) {
    out.push_back({"case", "input and expected", "something else"});
    return out;
  }
  const std::string& kind = test_case.find("kind")->as_string();
  if (kind == "request") {
    check_request_case(test_case, out);
  } else if (kind == "model_output" && input->find("engine_message") != nullptr) {
    check_answer_case(test_case, out);
  } else if (kind == "model_output" && input->find("answer_language") != nullptr) {
    check_language_case(test_case, out);
  } else if (kind == "stream_chunks" && input->find("engine_deltas") != nullptr) {
    check_delta_case(test_case, out);
  } else if (kind == "model_output" || kind == "stream_chunks") {
    check_output_case(test_case, out);
  } else {
    out.push_back({"case", "a known kind", kind});
  }
  return out;
}

}  // namespace tandem::policies
