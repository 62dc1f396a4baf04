// R26 and R27: the values of sampling, their ranges, and the names of each engine.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "policies/sanitize/steps.h"

namespace tandem::policies {
namespace {

constexpr size_t kFieldsMax = 256;
constexpr size_t kFieldNameBytesMax = 256;

struct Range {
  std::string_view key;
  double low;
  double high;
};

constexpr Range kRanges[] = {
    {"temperature", 0, 2},        {"top_p", 0, 1}, {"min_p", 0, 1}, {"presence_penalty", -2, 2},
    {"frequency_penalty", -2, 2},
};
constexpr std::string_view kPenaltyNames[] = {"repetition_penalty", "repeat_penalty"};

// Without an effect on any engine: left out without a word.
constexpr std::string_view kQuiet[] = {"store",
                                       "metadata",
                                       "service_tier",
                                       "user",
                                       "safety_identifier",
                                       "prompt_cache_key",
                                       "prompt_cache_retention"};

constexpr std::string_view kCommon[] = {"model",
                                        "messages",
                                        "stream",
                                        "stream_options",
                                        "max_tokens",
                                        "temperature",
                                        "top_p",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "stop",
                                        "seed",
                                        "response_format",
                                        "tools",
                                        "parallel_tool_calls",
                                        "reasoning_effort",
                                        "logit_bias",
                                        "logprobs",
                                        "top_logprobs"};

constexpr std::string_view kVllm[] = {"tool_choice",
                                      "n",
                                      "top_k",
                                      "min_p",
                                      "repetition_penalty",
                                      "chat_template_kwargs",
                                      "thinking_token_budget",
                                      "skip_special_tokens",
                                      "continue_final_message",
                                      "add_generation_prompt",
                                      "min_tokens",
                                      "ignore_eos",
                                      "stop_token_ids",
                                      "bad_words",
                                      "include_stop_str_in_output",
                                      "length_penalty",
                                      "use_beam_search",
                                      "guided_json",
                                      "guided_regex",
                                      "guided_choice",
                                      "guided_grammar",
                                      "structured_outputs",
                                      "add_special_tokens",
                                      "documents",
                                      "chat_template",
                                      "mm_processor_kwargs",
                                      "priority",
                                      "request_id",
                                      "cache_salt",
                                      "include_reasoning",
                                      "spaces_between_special_tokens",
                                      "truncate_prompt_tokens",
                                      "prompt_logprobs",
                                      "allowed_token_ids",
                                      "echo",
                                      "return_tokens_as_token_ids",
                                      "vllm_xargs"};
constexpr std::string_view kLlamaServer[] = {"tool_choice",
                                             "n",
                                             "top_k",
                                             "min_p",
                                             "repeat_penalty",
                                             "chat_template_kwargs",
                                             "thinking_budget_tokens",
                                             "n_probs",
                                             "skip_special_tokens",
                                             "cache_prompt",
                                             "id_slot",
                                             "typical_p",
                                             "repeat_last_n",
                                             "dynatemp_range",
                                             "dynatemp_exponent",
                                             "dry_multiplier",
                                             "dry_base",
                                             "dry_allowed_length",
                                             "dry_penalty_last_n",
                                             "dry_sequence_breakers",
                                             "xtc_probability",
                                             "xtc_threshold",
                                             "mirostat",
                                             "mirostat_tau",
                                             "mirostat_eta",
                                             "grammar",
                                             "json_schema",
                                             "samplers",
                                             "n_keep",
                                             "min_keep",
                                             "ignore_eos",
                                             "t_max_predict_ms",
                                             "return_tokens",
                                             "timings_per_token",
                                             "post_sampling_probs",
                                             "lora",
                                             "reasoning_format"};
constexpr std::string_view kSglang[] = {"tool_choice",
                                        "n",
                                        "top_k",
                                        "min_p",
                                        "repetition_penalty",
                                        "chat_template_kwargs",
                                        "skip_special_tokens",
                                        "continue_final_message",
                                        "min_tokens",
                                        "ignore_eos",
                                        "stop_token_ids",
                                        "regex",
                                        "ebnf",
                                        "separate_reasoning",
                                        "stream_reasoning",
                                        "no_stop_trim",
                                        "lora_path",
                                        "custom_params",
                                        "custom_logit_processor",
                                        "session_params"};
constexpr std::string_view kLmStudio[] = {"tool_choice",    "n",   "top_k",      "min_p",
                                          "repeat_penalty", "ttl", "draft_model"};
constexpr std::string_view kOwn[] = {"tool_choice",
                                     "n",
                                     "top_k",
                                     "min_p",
                                     "repetition_penalty",
                                     "chat_template_kwargs",
                                     "thinking_token_budget",
                                     "skip_special_tokens",
                                     "ignore_eos",
                                     "add_generation_prompt",
                                     "include_reasoning"};

template <size_t kCount>
bool holds(const std::string_view (&list)[kCount], std::string_view key) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

bool reads_field(EngineKind engine, std::string_view key) {
  if (holds(kCommon, key)) return true;
  switch (engine) {
    case EngineKind::vllm:
      return holds(kVllm, key);
    case EngineKind::llama_server:
      return holds(kLlamaServer, key);
    case EngineKind::sglang:
      return holds(kSglang, key);
    case EngineKind::lmstudio:
      return holds(kLmStudio, key);
    case EngineKind::own:
      return holds(kOwn, key);
    case EngineKind::ollama:
      return false;
  }
  return false;
}

// Empty: the engine has no such field.
std::string_view penalty_name(EngineKind engine) {
  switch (engine) {
    case EngineKind::vllm:
    case EngineKind::sglang:
    case EngineKind::own:
      return kPenaltyNames[0];
    case EngineKind::llama_server:
    case EngineKind::lmstudio:
      return kPenaltyNames[1];
    case EngineKind::ollama:
      return {};
  }
  return {};
}

Rejection refuse_as(const char* code, std::string message) {
  Rejection rejection = refuse(27, "", std::move(message));
  rejection.code = code;
  return rejection;
}

// Every later step looks fields up one by one, and receipts hold their names.
Refusal check_fields(const Json::Object& fields) {
  if (fields.size() > kFieldsMax) {
    return refuse_as("too_many_items",
                     "the request has " + std::to_string(fields.size()) +
                         " fields, the limit is " + std::to_string(kFieldsMax));
  }
  for (const Json::Member& field : fields) {
    if (field.first.size() <= kFieldNameBytesMax) continue;
    return refuse_as("invalid_value",
                     "the name of a field has " + std::to_string(field.first.size()) +
                         " bytes, the limit is " + std::to_string(kFieldNameBytesMax));
  }
  return std::nullopt;
}

// Takes fields out in one pass, in their order. The caller notes them.
template <typename Wanted>
std::vector<std::string> take_fields(Json& request, Wanted wanted) {
  std::vector<std::string> taken;
  std::erase_if(request.as_object(), [&](const Json::Member& field) {
    if (!wanted(field)) return false;
    taken.push_back(field.first);
    return true;
  });
  return taken;
}

Refusal check_range(const Draft& draft, const Range& range) {
  const Json* value = draft.find(range.key);
  if (value == nullptr) return std::nullopt;
  const std::string key(range.key);
  if (!value->is_number()) return refuse(27, key, key + " must be a number");
  const double number = value->as_double();
  if (number >= range.low && number <= range.high) return std::nullopt;  // false for NaN
  return refuse(27, key, key + " is out of its range");
}

Refusal check_types(const Draft& draft) {
  const Json* top_k = draft.find("top_k");
  if (top_k != nullptr && !top_k->is_integer()) {
    return refuse(27, "top_k", "top_k must be an integer");
  }
  const Json* seed = draft.find("seed");
  if (seed != nullptr && !seed->is_integer()) return refuse(27, "seed", "seed must be an integer");
  for (std::string_view name : kPenaltyNames) {
    const Json* value = draft.find(name);
    if (value != nullptr && !(value->is_number() && value->as_double() > 0)) {
      return refuse(27, std::string(name), std::string(name) + " must be a number above 0");
    }
  }
  return std::nullopt;
}

Refusal check_logprobs(Draft& draft) {
  const Json* wanted = draft.find("logprobs");
  if (wanted != nullptr && !wanted->is_bool()) {
    return refuse(27, "logprobs", "logprobs must be true or false");
  }
  const bool on = wanted != nullptr && wanted->as_bool();
  const Json* top = draft.find("top_logprobs");
  if (top != nullptr && (!on || !top->is_integer() || top->as_integer() < 0)) {
    return refuse(27, "top_logprobs",
                  on ? "top_logprobs must be a number" : "top_logprobs needs logprobs");
  }
  if (!on) draft.erase(27, "logprobs", "false is what a missing field means");
  return std::nullopt;
}

void set_missing(Draft& draft, std::string_view key, Json value) {
  if (key.empty() || draft.find(key) != nullptr) return;
  draft.set(26, key, std::move(value), "from the model's row of sampling values");
}

// The client may have used another engine's name.
void rename_penalty(Draft& draft) {
  const std::string_view name = penalty_name(draft.target.engine);
  for (std::string_view other : kPenaltyNames) {
    const Json* value = draft.find(other);
    if (name.empty() || other == name || value == nullptr) continue;
    if (draft.find(name) == nullptr) draft.set(27, name, *value, "this engine's name of the field");
    draft.erase(27, other, "this engine has another name for it");
  }
}

void name_logprobs(Draft& draft) {
  const Json* stream = draft.find("stream");
  if (draft.target.engine != EngineKind::llama_server || draft.find("tools") == nullptr ||
      stream == nullptr || !stream->is_bool() || !stream->as_bool() ||
      draft.find("logprobs") == nullptr) {
    return;
  }
  const Json* top = draft.find("top_logprobs");
  const char* why = "this engine refuses logprobs with tools and a stream";
  draft.set(27, "n_probs", top == nullptr ? Json(1) : *top, why);
  draft.erase(27, "logprobs", why);
  draft.erase(27, "top_logprobs", why);
}

}  // namespace

Refusal check_parameters(Draft& draft) {
  if (Refusal refusal = check_fields(draft.request.as_object())) return refusal;
  const auto nulls = take_fields(draft.request, [](const Json::Member& field) {
    return field.second.is_null() && field.first != "messages";
  });
  for (const std::string& key : nulls) draft.note(27, key, "null is what a missing field means");
  for (const Range& range : kRanges) {
    if (Refusal refusal = check_range(draft, range)) return refusal;
  }
  if (Refusal refusal = check_types(draft)) return refusal;
  if (Refusal refusal = check_logprobs(draft)) return refusal;
  const Json* top_p = draft.find("top_p");
  if (draft.on(27) && top_p != nullptr && top_p->as_double() == 0.0) {
    draft.set(27, "temperature", Json(0), "top_p 0 means greedy");
    draft.set(27, "top_p", Json(1.0), "top_p 0 means greedy");
  }
  return std::nullopt;
}

void fill_sampling_row(Draft& draft) {
  const EngineKind engine = draft.target.engine;
  const int64_t off = engine == EngineKind::llama_server ? 0 : -1;
  if (draft.on(27)) {
    rename_penalty(draft);
    const Json* top_k = draft.find("top_k");
    if (top_k != nullptr && top_k->as_integer() <= 0) {
      draft.set(27, "top_k", Json(off), "this engine's value for off");
    }
  }
  if (!draft.on(26)) return;
  SamplingRow row;
  if (draft.profile.rows.has_value()) {
    row = draft.result.thinking ? draft.profile.rows->thinking : draft.profile.rows->direct;
  }
  set_missing(draft, "temperature", Json(row.temperature.value_or(1.0)));
  set_missing(draft, "top_p", Json(row.top_p.value_or(1.0)));
  set_missing(draft, "presence_penalty", Json(row.presence_penalty.value_or(0.0)));
  if (engine == EngineKind::ollama) return;  // its endpoint has none of the other fields
  const int64_t top_k = row.top_k.value_or(0);
  set_missing(draft, "top_k", Json(top_k > 0 ? top_k : off));
  set_missing(draft, "min_p", Json(row.min_p.value_or(0.0)));
  set_missing(draft, penalty_name(engine), Json(row.repetition_penalty.value_or(1.0)));
}

void keep_engine_fields(Draft& draft) {
  if (!draft.on(27)) return;
  name_logprobs(draft);
  auto dropped = take_fields(draft.request, [&](const Json::Member& field) {
    return !reads_field(draft.target.engine, field.first);
  });
  for (const std::string& key : dropped) {
    draft.note(27, key, "this engine does not read it");
    if (!holds(kQuiet, key)) draft.warn(27, "param_dropped:" + key, "this engine lacks the field");
  }
  draft.result.unread = std::move(dropped);
}

}  // namespace tandem::policies
