// prepare, prepared, submit and sampling: see base/protocol.h.
#include "base/overloaded.h"
#include "base/protocol.h"
#include "base/protocol_fields.h"

namespace tandem::protocol {
namespace {

Result<Prepare> prepare_chat_from(FieldReader& in) {
  PrepareChat chat;
  const Json* messages = in.optional_array("messages");
  const Json* tools = in.optional_array("tools");
  const Json* args = in.optional_object("template_args");
  in.boolean("add_generation_prompt", chat.add_generation_prompt);
  in.optional_boolean("continue_final_message", chat.continue_final_message);
  TRY(in.status());
  if (messages == nullptr) return make_error(Errc::corrupt, "expected an array", "messages");
  chat.messages = *messages;
  if (tools != nullptr) chat.tools = *tools;
  if (args != nullptr) chat.template_args = *args;
  return Prepare{std::move(chat)};
}

Result<Prepare> prepare_text_from(FieldReader& in) {
  PrepareText text;
  in.string("text", text.text);
  in.boolean("add_special", text.add_special);
  in.boolean("parse_special", text.parse_special);
  TRY(in.status());
  return Prepare{std::move(text)};
}

Result<Prepare> prepare_tokens_from(FieldReader& in) {
  PrepareTokens tokens;
  in.token_ids("tokens", tokens.tokens);
  TRY(in.status());
  return Prepare{std::move(tokens)};
}

Json constraint_to_json(const Constraint& constraint) {
  return Json::object({{"kind", constraint_kind_name(constraint.kind)},
                       {"schema", constraint.schema},
                       {"tools", constraint.tools},
                       {"tool_name", constraint.tool_name},
                       {"syntax", constraint.syntax},
                       {"parallel_calls", constraint.parallel_calls}});
}

Result<Constraint> constraint_from(const Json& json) {
  Constraint out;
  std::string kind;
  FieldReader in(json);
  in.string("kind", kind);
  const Json* schema = in.required("schema");
  const Json* tools = in.optional_array("tools");
  in.string("tool_name", out.tool_name);
  in.string("syntax", out.syntax);
  in.boolean("parallel_calls", out.parallel_calls);
  TRY(in.status());
  out.schema = *schema;
  if (tools != nullptr) out.tools = *tools;
  for (const auto candidate : {ConstraintKind::json_object, ConstraintKind::json_schema,
                               ConstraintKind::tool_call}) {
    if (kind != constraint_kind_name(candidate)) continue;
    out.kind = candidate;
    return out;
  }
  return make_error(Errc::corrupt, "unknown kind of constraint", "kind");
}

Result<Prepare> prepare_input_from(const Json& json) {
  std::string kind;
  FieldReader in(json);
  in.string("kind", kind);
  TRY(in.status());
  if (kind == "chat") return prepare_chat_from(in);
  if (kind == "text") return prepare_text_from(in);
  if (kind == "tokens") return prepare_tokens_from(in);
  return make_error(Errc::corrupt, "unknown kind of prompt", "kind");
}

Json strings_to_json(const std::vector<std::string>& texts) {
  Json out = Json::array();
  for (const std::string& text : texts) out.push_back(text);
  return out;
}

}  // namespace

const char* constraint_kind_name(ConstraintKind kind) noexcept {
  switch (kind) {
    case ConstraintKind::json_object: return "json_object";
    case ConstraintKind::json_schema: return "json_schema";
    case ConstraintKind::tool_call: return "tool_call";
  }
  return "json_object";
}

Json Prepare::to_json() const {
  Json json = std::visit(
      Overloaded{
          [](const PrepareChat& chat) {
            return Json::object({{"kind", "chat"},
                                 {"messages", chat.messages},
                                 {"tools", chat.tools},
                                 {"template_args", chat.template_args},
                                 {"add_generation_prompt", chat.add_generation_prompt},
                                 {"continue_final_message", chat.continue_final_message}});
          },
          [](const PrepareText& text) {
            return Json::object({{"kind", "text"},
                                 {"text", text.text},
                                 {"add_special", text.add_special},
                                 {"parse_special", text.parse_special}});
          },
          [](const PrepareTokens& tokens) {
            return Json::object({{"kind", "tokens"}, {"tokens", token_ids_to_json(tokens.tokens)}});
          }},
      input);
  if (constraint) json.set("constraint", constraint_to_json(*constraint));
  if (!cache_salt.empty()) json.set("cache_salt", cache_salt);
  return json;
}

Result<Prepare> Prepare::from_json(const Json& json) {
  constexpr size_t kSaltBytesMax = 256;
  TRY_ASSIGN(Prepare out, prepare_input_from(json));
  FieldReader in(json);
  const Json* constraint = in.optional_object("constraint");
  in.optional_string("cache_salt", out.cache_salt);
  TRY(in.status());
  if (out.cache_salt.size() > kSaltBytesMax) {
    return make_error(Errc::corrupt, "more than 256 bytes", "cache_salt");
  }
  if (constraint != nullptr) {
    TRY_ASSIGN(out.constraint, constraint_from(*constraint));
  }
  return out;
}

Json Prepared::to_json() const {
  Json::Array list;
  for (const int64_t boundary : boundaries) list.emplace_back(boundary);
  return Json::object({{"prompt_tokens", prompt_tokens},
                       {"cached_tokens", cached_tokens},
                       {"boundaries", Json(std::move(list))},
                       {"answer_tokens_min", answer_tokens_min},
                       {"warnings", strings_to_json(warnings)}});
}

Result<Prepared> Prepared::from_json(const Json& json) {
  Prepared out;
  std::vector<int32_t> boundaries;
  FieldReader in(json);
  in.integer("prompt_tokens", out.prompt_tokens, 0);
  in.integer("cached_tokens", out.cached_tokens, 0);
  in.token_ids("boundaries", boundaries);
  in.optional_integer("answer_tokens_min", out.answer_tokens_min, 0, INT32_MAX);
  in.optional_strings("warnings", out.warnings);
  TRY(in.status());
  out.boundaries.assign(boundaries.begin(), boundaries.end());
  return out;
}

Json Sampling::to_json() const {
  Json bias = Json::array();
  for (const auto& [token, value] : logit_bias) bias.push_back(Json(Json::Array{token, value}));
  Json json = Json::object({{"temperature", temperature},
                            {"top_p", top_p},
                            {"min_p", min_p},
                            {"top_k", top_k},
                            {"repetition_penalty", repetition_penalty},
                            {"presence_penalty", presence_penalty},
                            {"frequency_penalty", frequency_penalty},
                            {"logit_bias", std::move(bias)}});
  // All 64 bits of a seed must survive; JSON integers here are signed.
  if (seed) json.set("seed", static_cast<int64_t>(*seed));
  return json;
}

Result<Sampling> Sampling::from_json(const Json& json) {
  Sampling out;
  FieldReader in(json);
  in.number("temperature", out.temperature, 0.0, 100.0);
  in.number("top_p", out.top_p, 0.0, 1.0);
  in.number("min_p", out.min_p, 0.0, 1.0);
  in.integer("top_k", out.top_k, -1, INT32_MAX);
  in.number("repetition_penalty", out.repetition_penalty, 1e-6, 1e6);
  in.number("presence_penalty", out.presence_penalty, -100.0, 100.0);
  in.number("frequency_penalty", out.frequency_penalty, -100.0, 100.0);
  const Json* bias = in.optional_array("logit_bias");
  TRY(in.status());
  if (bias != nullptr) {
    for (const Json& entry : bias->as_array()) {
      const bool shaped = entry.is_array() && entry.as_array().size() == 2 &&
                          entry.as_array()[0].is_integer() && entry.as_array()[1].is_number();
      const int64_t token = shaped ? entry.as_array()[0].as_integer() : -1;
      if (token < 0 || token > INT32_MAX) {
        return make_error(Errc::corrupt, "expected pairs of token and bias", "logit_bias");
      }
      out.logit_bias.emplace_back(static_cast<int32_t>(token), entry.as_array()[1].as_double());
    }
  }
  if (const Json* seed = json.find("seed"); seed != nullptr && !seed->is_null()) {
    if (!seed->is_integer()) return make_error(Errc::corrupt, "expected an integer", "seed");
    out.seed = static_cast<uint64_t>(seed->as_integer());
  }
  return out;
}

Json AnswerFormat::to_json() const {
  return Json::object({{"syntax", syntax},
                       {"thinking_open", thinking_open},
                       {"thinking_begins", thinking_begins},
                       {"tools", tools},
                       {"tool_choice", tool_choice},
                       {"parallel_calls", parallel_calls},
                       {"nine_character_ids", nine_character_ids},
                       {"id_seed", id_seed},
                       {"rules_off", token_ids_to_json(rules_off)}});
}

Result<AnswerFormat> AnswerFormat::from_json(const Json& json) {
  AnswerFormat out;
  FieldReader in(json);
  in.string("syntax", out.syntax);
  in.boolean("thinking_open", out.thinking_open);
  in.optional_boolean("thinking_begins", out.thinking_begins);
  const Json* tools = in.optional_array("tools");
  const Json* choice = in.required("tool_choice");
  in.boolean("parallel_calls", out.parallel_calls);
  in.boolean("nine_character_ids", out.nine_character_ids);
  in.string("id_seed", out.id_seed);
  in.token_ids("rules_off", out.rules_off);
  TRY(in.status());
  if (tools != nullptr) out.tools = *tools;
  out.tool_choice = *choice;
  return out;
}

Json Submit::to_json() const {
  Json json = Json::object({{"prompt_id", static_cast<int64_t>(prompt_id)},
                       {"sampling", sampling.to_json()},
                       {"max_tokens", max_tokens},
                       {"stop", strings_to_json(stop)},
                       {"top_logprobs", top_logprobs},
                       {"prompt_logprobs", prompt_logprobs},
                       {"ignore_eos", ignore_eos},
                       {"keep_special", keep_special},
                       {"thinking_tokens_max", thinking_tokens_max},
                       {"answer_tokens_reserved", answer_tokens_reserved},
                       {"priority", priority},
                       {"credit", credit}});
  if (format) json.set("format", format->to_json());
  return json;
}

Result<Submit> Submit::from_json(const Json& json) {
  Submit out;
  int64_t prompt_id = 0;
  FieldReader in(json);
  in.integer("prompt_id", prompt_id, 1);
  const Json* sampling = in.required("sampling");
  in.integer("max_tokens", out.max_tokens, 0, INT32_MAX);
  in.strings("stop", out.stop);
  in.integer("top_logprobs", out.top_logprobs, -1, 20);
  in.boolean("prompt_logprobs", out.prompt_logprobs);
  in.boolean("ignore_eos", out.ignore_eos);
  in.boolean("keep_special", out.keep_special);
  in.optional_integer("thinking_tokens_max", out.thinking_tokens_max, -1, INT32_MAX);
  in.optional_integer("answer_tokens_reserved", out.answer_tokens_reserved, 0, INT32_MAX);
  in.optional_integer("priority", out.priority, 0, INT32_MAX);
  in.integer("credit", out.credit, 0, int64_t{1} << 32);
  const Json* format = in.optional_object("format");
  TRY(in.status());
  if (format != nullptr) {
    TRY_ASSIGN(out.format, AnswerFormat::from_json(*format));
  }
  TRY_ASSIGN(out.sampling, Sampling::from_json(*sampling));
  out.prompt_id = static_cast<uint64_t>(prompt_id);
  constexpr size_t kStopsMax = 64;
  if (out.stop.size() > kStopsMax) {
    return make_error(Errc::corrupt, "more than 64 stop strings", "stop");
  }
  return out;
}

}  // namespace tandem::protocol
