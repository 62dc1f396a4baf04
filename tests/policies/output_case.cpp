// Raw text and structured deltas of an answer: what the client gets, however the text was cut.
#include <algorithm>
#include <functional>
#include <regex>
#include <set>

#include "base/utf8.h"
#include "policies/parse/deltas.h"
#include "policies/parse/parse.h"
#include "service/wire/openai_response.h"
#include "tests/policies/case_check.h"

namespace tandem::policies {
namespace {

namespace wire = tandem::service::wire;

// What the client gets of one answer.
struct Received {
  std::string content;
  std::string reasoning;
  std::vector<ParsedCall> calls;
  AnswerEnd end;
  std::vector<Json> chunks;  // of a stream, as they are written
  bool valid_utf8 = true;
  bool has_empty_event = false;

  void add(const AnswerEvents& events) {
    const wire::AnswerHead head{"chatcmpl-1", 0, "model"};
    for (const AnswerEvent& event : events) {
      wire::ChatDelta delta;
      if (event.part == AnswerPart::call) {
        calls.push_back(event.call);
        continue;
      }
      valid_utf8 = valid_utf8 && utf8::is_valid(event.text);
      has_empty_event = has_empty_event || event.text.empty();
      const bool thought = event.part == AnswerPart::reasoning;
      (thought ? reasoning : content) += event.text;
      (thought ? delta.reasoning : delta.content) = event.text;
      chunks.push_back(wire::chat_chunk(head, delta));
    }
  }
};

std::string text_of(const Json* value) {
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

// Arguments are compared by value, but a whole number must be written as one.
bool same_arguments(const Json& expected, const Json& got) {
  if (expected.is_integer()) return got.is_integer() && expected == got;
  if (expected.is_number()) return got.is_number() && expected.as_double() == got.as_double();
  if (expected.is_array() && got.is_array()) {
    return std::equal(expected.as_array().begin(), expected.as_array().end(),
                      got.as_array().begin(), got.as_array().end(), same_arguments);
  }
  if (!expected.is_object() || !got.is_object()) return expected == got;
  if (expected.as_object().size() != got.as_object().size()) return false;
  return std::all_of(expected.as_object().begin(), expected.as_object().end(),
                     [&](const Json::Member& member) {
                       const Json* other = got.find(member.first);
                       return other != nullptr && same_arguments(member.second, *other);
                     });
}

// Listed keys only, at every depth.
bool holds_listed(const Json& expected, const Json& got) {
  if (!expected.is_object() || !got.is_object()) return same_value(expected, got);
  return std::all_of(expected.as_object().begin(), expected.as_object().end(),
                     [&](const Json::Member& member) {
                       const Json* other = got.find(member.first);
                       return other != nullptr && holds_listed(member.second, *other);
                     });
}

Json as_message(const Received& got) {
  Json::Array calls;
  for (const ParsedCall& call : got.calls) {
    Json function = Json::object({{"name", Json(call.name)}, {"arguments", Json(call.arguments)}});
    calls.push_back(Json::object({{"id", Json(call.id)}, {"function", std::move(function)}}));
  }
  Json message = Json::object({{"role", Json("assistant")}});
  message.set("tool_calls", Json(std::move(calls)));
  return message;
}

bool same_call(const Json& expected, const ParsedCall& got, Differences& out) {
  if (!only_known_keys(expected, {"name", "arguments", "id"}, "tool_calls", out)) return true;
  const Json* id = expected.find("id");
  if (id != nullptr && text_of(id) != got.id) return false;
  if (text_of(expected.find("name")) != got.name) return false;
  const Json* arguments = expected.find("arguments");
  if (arguments == nullptr) return true;
  const Result<Json> parsed = parse_json(got.arguments);
  return parsed.ok() && same_arguments(*arguments, *parsed);
}

void check_calls(const Json& expected, const Received& got, Differences& out) {
  if (const Json* calls = expected.find("tool_calls")) {
    bool same = calls->as_array().size() == got.calls.size();
    for (size_t i = 0; same && i < got.calls.size(); ++i) {
      same = same_call(calls->as_array()[i], got.calls[i], out);
    }
    const Json message = as_message(got);
    if (!same) differ(out, "R12-R19", *calls, message.find("tool_calls"));
  }
  if (const Json* indexes = expected.find("indexes")) {
    Json list = Json::array();
    for (const ParsedCall& call : got.calls) list.push_back(Json(call.index));
    if (!same_value(*indexes, list)) differ(out, "R19", *indexes, &list);
  }
  const Json* given = expected.find("constraints");
  const Json constraints = given == nullptr || given->is_null() ? Json::object() : *given;
  if (!only_known_keys(constraints,
                       {"tool_call_ids_unique_per_message", "tool_call_id_nonempty",
                        "tool_call_id_regex", "not_rejected", "deterministic"},
                       "constraints", out)) {
    return;
  }
  check_call_ids(Json(Json::Array{as_message(got)}), constraints, out);
}

void check_text(const Json& expected, const char* key, const std::string& got, const char* rule,
                Differences& out) {
  const Json* wanted = expected.find(key);
  if (wanted == nullptr || text_of(wanted) == got) return;
  const Json shown(got);
  differ(out, rule, *wanted, &shown);
}

void check_error(const Json& expected, const Received& got, Differences& out) {
  const Json* error = expected.find("error");
  if (error == nullptr) {
    if (got.end.call_missing) out.push_back({"R17", "an answer", "tool_call_missing"});
    return;
  }
  if (!only_known_keys(*error, {"status", "code"}, "error", out)) return;
  const Json missing = Json::object({{"status", Json(502)}, {"code", Json("tool_call_missing")}});
  if (!got.end.call_missing || !holds_listed(*error, missing)) differ(out, "R17", *error, nullptr);
}

void check_received(const Json& expected, const Received& got, Differences& out) {
  check_text(expected, "content", got.content, "R12-R25", out);
  check_text(expected, "reasoning_content", got.reasoning, "R16+R24", out);
  check_text(expected, "finish_reason", got.end.finish, "R15+R19+R25", out);
  check_calls(expected, got, out);
  check_error(expected, got, out);
  if (const Json* codes = expected.find("warn")) {
    check_codes(*codes, warning_codes(got.end.warnings), "R12-R17", out);
  }
  if (const Json* never = expected.find("never_in_content_deltas")) {
    for (const Json& text : never->as_array()) {
      if (got.content.find(text.as_string()) != std::string::npos) {
        out.push_back({"R24", "no " + text.as_string() + " in content", got.content});
      }
    }
  }
  if (!got.valid_utf8) out.push_back({"R24", "deltas of valid UTF-8", got.content});
  if (got.has_empty_event) out.push_back({"R24", "deltas that are not empty", "an empty one"});
}

std::optional<ParseOptions> parse_options(const Json& test_case, Differences& out) {
  const Json& input = *test_case.find("input");
  const std::string& family = test_case.find("family")->as_string();
  const std::optional<ToolSyntax> syntax = tool_syntax(family == "any" ? "plain" : family);
  if (!syntax.has_value()) {
    out.push_back({"case", "a known wire format", family});
    return std::nullopt;
  }
  ParseOptions options;
  options.syntax = *syntax;
  const Json* open = input.find("thinking_open");
  options.thinking_open = open != nullptr && open->is_bool() && open->as_bool();
  if (const Json* tools = input.find("tools")) options.tools = declared_tools(*tools);
  options.choice = call_choice(input.find("tool_choice"));
  const Json* parallel = input.find("parallel_tool_calls");
  options.parallel_calls = parallel == nullptr || !parallel->is_bool() || parallel->as_bool();
  options.nine_character_ids = *syntax == ToolSyntax::mistral;
  options.id_seed = test_case.find("id")->as_string();
  const Json* stop = input.find("stop");
  if (stop != nullptr && stop->is_string()) options.stop.push_back(stop->as_string());
  if (stop != nullptr && stop->is_array()) {
    for (const Json& text : stop->as_array()) options.stop.push_back(text_of(&text));
  }
  return options;
}

Received parse_pieces(const ParseOptions& options, const std::vector<std::string_view>& pieces,
                      EngineFinish finish) {
  Received got;
  AnswerParser parser(options);
  for (std::string_view piece : pieces) got.add(parser.feed(piece));
  got.end = parser.finish(finish);
  got.add(got.end.events);
  return got;
}

std::vector<std::string> given_pieces(const Json& input, Differences& out) {
  std::vector<std::string> pieces;
  const Json* chunks = input.find("chunks");
  const Json* text = input.find("text");
  if (text != nullptr && text->is_string()) pieces.push_back(text->as_string());
  if (chunks != nullptr && chunks->is_array()) {
    for (const Json& chunk : chunks->as_array()) pieces.push_back(text_of(&chunk));
  }
  if ((chunks == nullptr) == (text == nullptr)) out.push_back({"case", "text or chunks", "other"});
  return pieces;
}

DeltaOptions delta_options(const Json& test_case) {
  const Json& input = *test_case.find("input");
  DeltaOptions options;
  const Json* parallel = input.find("parallel_tool_calls");
  options.parallel_calls = parallel == nullptr || !parallel->is_bool() || parallel->as_bool();
  options.nine_character_ids = test_case.find("family")->as_string() == "mistral";
  options.id_seed = test_case.find("id")->as_string();
  options.forced = call_choice(input.find("tool_choice")) == CallChoice::forced;
  const Json* most = input.find("max_tokens");
  if (most != nullptr && most->is_integer()) options.max_tokens = most->as_integer();
  const Json* stop = input.find("stop");
  if (stop != nullptr && stop->is_string()) options.stop.push_back(stop->as_string());
  if (stop != nullptr && stop->is_array()) {
    for (const Json& text : stop->as_array()) options.stop.push_back(text_of(&text));
  }
  return options;
}

// The usage chunk, where the client asked for it (R32). The request decides, as in the service.
void add_usage_chunk(const Json& input, const Json* usage, Received& got) {
  Json message = Json::object({{"role", Json("user")}, {"content", Json("q")}});
  Json request = Json::object({{"messages", Json(Json::Array{std::move(message)})}});
  request.set("stream", Json(true));
  if (const Json* options = input.find("client_stream_options")) {
    request.set("stream_options", *options);
  }
  const SanitizeOutcome outcome =
      sanitize(std::move(request), *family_profile("plain"), default_facts(EngineKind::vllm), {});
  const Sanitized* sanitized = std::get_if<Sanitized>(&outcome);
  if (sanitized == nullptr || !sanitized->duties.forward_usage) return;
  const auto count = [&](const char* key) {
    const Json* value = usage == nullptr ? nullptr : usage->find(key);
    return value != nullptr && value->is_integer() ? value->as_integer() : 0;
  };
  protocol::Usage sums;
  sums.prompt_tokens = count("prompt_tokens");
  sums.completion_tokens = count("completion_tokens");
  got.chunks.push_back(wire::chat_usage_chunk({"chatcmpl-1", 0, "model"}, sums));
}

Received read_deltas(const Json& test_case, const Json::Array& items, Differences& out) {
  Received got;
  DeltaReader reader(delta_options(test_case));
  std::string finish;
  const Json* usage = nullptr;
  for (const Json& item : items) {
    if (!only_known_keys(item, {"delta", "finish_reason", "choices", "usage"}, "engine_deltas",
                         out)) {
      return got;
    }
    if (const Json* delta = item.find("delta")) got.add(reader.feed(*delta));
    if (const Json* reason = item.find("finish_reason"); reason != nullptr && reason->is_string()) {
      finish = reason->as_string();
    }
    if (const Json* told = item.find("usage"); told != nullptr && told->is_object()) usage = told;
  }
  const Json* tokens = usage == nullptr ? nullptr : usage->find("completion_tokens");
  std::optional<int64_t> completion;
  if (tokens != nullptr && tokens->is_integer()) completion = tokens->as_integer();
  got.end = reader.finish(finish, completion);
  got.add(got.end.events);
  wire::ChatDelta last;
  last.finish_reason = got.end.finish.c_str();
  got.chunks.push_back(wire::chat_chunk({"chatcmpl-1", 0, "model"}, last));
  add_usage_chunk(*test_case.find("input"), usage, got);
  return got;
}

bool has_choices(const Json& chunk) {
  const Json* choices = chunk.find("choices");
  return choices != nullptr && choices->is_array() && !choices->as_array().empty();
}

void check_chunks(const Json& expected, const Received& got, Differences& out) {
  if (const Json* field = expected.find("client_delta_field")) {
    std::set<std::string> fields;
    for (const Json& chunk : got.chunks) {
      if (!has_choices(chunk)) continue;
      for (const auto& member : chunk.find("choices")->as_array()[0].find("delta")->as_object()) {
        if (member.first != "content" && member.first != "role") fields.insert(member.first);
      }
    }
    if (fields != std::set<std::string>{text_of(field)}) {
      differ(out, "R11", *field, nullptr);
    }
  }
  if (const Json* count = expected.find("client_chunks_with_empty_choices")) {
    const Json empty(static_cast<int64_t>(
        std::count_if(got.chunks.begin(), got.chunks.end(), std::not_fn(has_choices))));
    if (!same_value(*count, empty)) differ(out, "R32", *count, &empty);
  }
  if (const Json* last = expected.find("last_chunk")) {
    const Json* sent = got.chunks.empty() ? nullptr : &got.chunks.back();
    if (sent == nullptr || !holds_listed(*last, *sent)) differ(out, "R32", *last, sent);
  }
}

}  // namespace

void check_output_case(const Json& test_case, Differences& out) {
  const Json& input = *test_case.find("input");
  const Json& expected = *test_case.find("expected");
  if (!only_known_keys(input,
                       {"text", "chunks", "thinking_open", "engine_finish", "tools", "tool_choice",
                        "parallel_tool_calls", "stop", "max_tokens"},
                       "input", out) ||
      !only_known_keys(expected,
                       {"content", "reasoning_content", "tool_calls", "finish_reason", "warn",
                        "never_in_content_deltas", "indexes", "constraints", "error"},
                       "expected", out)) {
    return;
  }
  const std::vector<std::string> given = given_pieces(input, out);
  const std::optional<ParseOptions> options = parse_options(test_case, out);
  if (!options.has_value() || !out.empty()) return;
  const Json* reason = input.find("engine_finish");
  const EngineFinish finish = engine_finish(reason == nullptr ? "stop" : text_of(reason));
  std::string whole;
  for (const std::string& piece : given) whole += piece;
  const std::string_view text = whole;
  const auto check = [&](const std::vector<std::string_view>& pieces, const std::string& how) {
    Differences found;
    check_received(expected, parse_pieces(*options, pieces, finish), found);
    for (Difference& difference : found) {
      difference.got += " [" + how + "]";
      out.push_back(std::move(difference));
    }
    return found.empty();
  };
  if (!check({given.begin(), given.end()}, "as given") || !check({text}, "in one piece")) return;
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
  if (!check(bytes, "byte by byte")) return;
  for (size_t cut = 1; cut < text.size(); ++cut) {
    if (!check({text.substr(0, cut), text.substr(cut)}, "cut at byte " + std::to_string(cut)))
      return;
  }
}

void check_delta_case(const Json& test_case, Differences& out) {
  const Json& input = *test_case.find("input");
  const Json& expected = *test_case.find("expected");
  if (!only_known_keys(input,
                       {"engine_deltas", "client_stream_options", "tools", "tool_choice",
                        "parallel_tool_calls", "stop", "max_tokens"},
                       "input", out) ||
      !only_known_keys(expected,
                       {"content", "reasoning_content", "tool_calls", "finish_reason", "warn",
                        "never_in_content_deltas", "indexes", "constraints", "error",
                        "client_delta_field", "client_chunks_with_empty_choices", "last_chunk"},
                       "expected", out)) {
    return;
  }
  const Json* items = input.find("engine_deltas");
  if (!items->is_array()) {
    out.push_back({"case", "a list of deltas", items->dump()});
    return;
  }
  const Received got = read_deltas(test_case, items->as_array(), out);
  check_received(expected, got, out);
  check_chunks(expected, got, out);
}

}  // namespace tandem::policies
