// Events and their parts: see base/protocol.h. Short member names: one event is sent per token.
#include <cmath>
#include <limits>

#include "base/overloaded.h"
#include "base/protocol.h"
#include "base/protocol_fields.h"

namespace tandem::protocol {
namespace {

Json content_to_json(const ContentEvent& event) {
  Json json = Json::object({{"type", event.reasoning ? "reasoning" : "content"},
                            {"text", event.text}});
  if (event.token != kNoToken) json.set("token", event.token);
  if (event.score) json.set("score", event.score->to_json());
  return json;
}

Json prompt_to_json(const PromptEvent& event) {
  Json list = Json::array();
  for (const ScoredToken& token : event.tokens) list.push_back(token.to_json());
  return Json::object({{"type", "prompt"}, {"tokens", std::move(list)}});
}

Json tool_call_to_json(const ToolCallEvent& event) {
  return Json::object({{"type", "tool_call"},
                       {"index", event.index},
                       {"id", event.id},
                       {"name", event.name},
                       {"arguments", event.arguments}});
}

Json finish_to_json(const FinishEvent& event) {
  Json warnings = Json::array();
  for (const Warning& warning : event.warnings) {
    warnings.push_back(Json::object(
        {{"rule", warning.rule}, {"code", warning.code}, {"detail", warning.detail}}));
  }
  return Json::object({{"type", "finish"},
                       {"reason", finish_reason_name(event.reason)},
                       {"text", event.text},
                       {"stop_sequence", event.stop_sequence},
                       {"prompt_tokens", event.usage.prompt_tokens},
                       {"cached_tokens", event.usage.cached_tokens},
                       {"completion_tokens", event.usage.completion_tokens},
                       {"reasoning_tokens", event.usage.reasoning_tokens},
                       {"queue_us", event.timing.queue_us},
                       {"prefill_us", event.timing.prefill_us},
                       {"decode_us", event.timing.decode_us},
                       {"warnings", std::move(warnings)},
                       {"call_missing", event.call_missing}});
}

Result<Event> content_from(FieldReader& in, bool reasoning) {
  ContentEvent event;
  event.reasoning = reasoning;
  in.string("text", event.text);
  int64_t token = kNoToken;
  in.optional_integer("token", token, 0, std::numeric_limits<int32_t>::max());
  const Json* score = in.optional_object("score");
  TRY(in.status());
  event.token = static_cast<int32_t>(token);
  if (score != nullptr) {
    TRY_ASSIGN(event.score, ScoredToken::from_json(*score));
  }
  return Event{std::move(event)};
}

Result<Event> prompt_from(FieldReader& in) {
  PromptEvent event;
  const Json* tokens = in.optional_array("tokens");
  TRY(in.status());
  if (tokens == nullptr) return make_error(Errc::corrupt, "expected an array", "tokens");
  for (const Json& token : tokens->as_array()) {
    TRY_ASSIGN(ScoredToken scored, ScoredToken::from_json(token));
    event.tokens.push_back(std::move(scored));
  }
  return Event{std::move(event)};
}

Result<Event> tool_call_from(FieldReader& in) {
  ToolCallEvent event;
  in.integer("index", event.index, 0);
  in.string("id", event.id);
  in.string("name", event.name);
  in.string("arguments", event.arguments);
  TRY(in.status());
  return Event{std::move(event)};
}

Result<void> read_warnings(const Json& list, std::vector<Warning>& out) {
  for (const Json& entry : list.as_array()) {
    Warning warning;
    FieldReader in(entry);
    in.integer("rule", warning.rule, 0);
    in.string("code", warning.code);
    in.string("detail", warning.detail);
    TRY(in.status());
    out.push_back(std::move(warning));
  }
  return {};
}

Result<Event> finish_from(FieldReader& in) {
  FinishEvent event;
  std::string reason;
  in.string("reason", reason);
  in.string("text", event.text);
  in.string("stop_sequence", event.stop_sequence);
  in.integer("prompt_tokens", event.usage.prompt_tokens, 0);
  in.integer("cached_tokens", event.usage.cached_tokens, 0);
  in.integer("completion_tokens", event.usage.completion_tokens, 0);
  in.integer("reasoning_tokens", event.usage.reasoning_tokens, 0);
  in.integer("queue_us", event.timing.queue_us, 0);
  in.integer("prefill_us", event.timing.prefill_us, 0);
  in.integer("decode_us", event.timing.decode_us, 0);
  in.optional_boolean("call_missing", event.call_missing);
  const Json* warnings = in.optional_array("warnings");
  TRY(in.status());
  if (warnings != nullptr) {
    TRY(read_warnings(*warnings, event.warnings));
  }
  for (const auto candidate : {FinishReason::stop, FinishReason::length, FinishReason::tool_calls,
                               FinishReason::cancelled}) {
    if (reason != finish_reason_name(candidate)) continue;
    event.reason = candidate;
    return Event{std::move(event)};
  }
  return make_error(Errc::corrupt, "unknown finish reason", "reason");
}

}  // namespace

const char* finish_reason_name(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::tool_calls: return "tool_calls";
    case FinishReason::cancelled: return "cancelled";
  }
  return "stop";
}

Json TokenLogprob::to_json() const {
  return Json::object({{"token", token}, {"bytes", bytes_to_json(bytes)}, {"logprob", logprob}});
}

Result<TokenLogprob> TokenLogprob::from_json(const Json& json) {
  TokenLogprob out;
  FieldReader in(json);
  in.token_id("token", out.token);
  const Json* bytes = in.required("bytes");
  const Json* logprob = in.required("logprob");
  TRY(in.status());
  TRY_ASSIGN(out.bytes, bytes_from_json(*bytes, "bytes"));
  if (logprob->is_null()) {  // the first prompt token: nothing stands before it
    out.logprob = std::numeric_limits<double>::quiet_NaN();
  } else if (logprob->is_number() && logprob->as_double() <= 0.0) {
    out.logprob = logprob->as_double();
  } else {
    return make_error(Errc::corrupt, "expected a number of at most 0", "logprob");
  }
  return out;
}

Json ScoredToken::to_json() const {
  Json json = chosen.to_json();
  Json list = Json::array();
  for (const TokenLogprob& entry : top) list.push_back(entry.to_json());
  json.set("top", std::move(list));
  return json;
}

Result<ScoredToken> ScoredToken::from_json(const Json& json) {
  ScoredToken out;
  TRY_ASSIGN(out.chosen, TokenLogprob::from_json(json));
  FieldReader in(json);
  const Json* top = in.optional_array("top");
  TRY(in.status());
  if (top != nullptr) {
    for (const Json& entry : top->as_array()) {
      TRY_ASSIGN(TokenLogprob logprob, TokenLogprob::from_json(entry));
      out.top.push_back(std::move(logprob));
    }
  }
  return out;
}

Json Event::to_json() const {
  return std::visit(Overloaded{[](const ContentEvent& e) { return content_to_json(e); },
                               [](const PromptEvent& e) { return prompt_to_json(e); },
                               [](const ToolCallEvent& e) { return tool_call_to_json(e); },
                               [](const FinishEvent& e) { return finish_to_json(e); }},
                    body);
}

Result<Event> Event::from_json(const Json& json) {
  std::string type;
  FieldReader in(json);
  in.string("type", type);
  TRY(in.status());
  if (type == "content") return content_from(in, false);
  if (type == "reasoning") return content_from(in, true);
  if (type == "prompt") return prompt_from(in);
  if (type == "tool_call") return tool_call_from(in);
  if (type == "finish") return finish_from(in);
  return make_error(Errc::corrupt, "unknown type of event", "type");
}

}  // namespace tandem::protocol
