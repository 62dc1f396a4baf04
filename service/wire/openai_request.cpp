#include "service/wire/openai_request.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>
#include <utility>

#include "service/wire/chat_messages.h"
#include "service/wire/field_reader.h"

namespace tandem::service::wire {
namespace {

constexpr size_t kModelBytesMax = 256;
constexpr size_t kIgnoredMax = 8;
constexpr int64_t kMaxTokensMax = int64_t{1} << 31;
constexpr int64_t kCompletionTokensDefault = 16;

void read_logit_bias(FieldReader& body, SamplingFields& sampling) {
  const Json* bias = body.find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) {
    add_wrong_type(body.problems(), "logit_bias", "an object", *bias);
    return;
  }
  if (bias->as_object().size() > kLogitBiasMax) {
    body.problems().add(kTooMany, "logit_bias",
                        "logit_bias has " + std::to_string(bias->as_object().size()) +
                            " entries, the limit is " + std::to_string(kLogitBiasMax));
    return;
  }
  FieldReader entries(*bias, "logit_bias", body.problems());
  for (const auto& member : bias->as_object()) {
    const std::string& key = member.first;
    int32_t token = -1;
    const char* end = key.data() + key.size();
    const auto read = std::from_chars(key.data(), end, token);
    if (read.ec != std::errc() || read.ptr != end || token < 0) {
      body.problems().add(kOutOfRange, "logit_bias",
                          "logit_bias keys must be token ids, written as decimal numbers");
      return;
    }
    const auto value = entries.number(key, {.min = -100, .max = 100});
    if (!value.has_value()) return;
    sampling.logit_bias.emplace_back(token, *value);
  }
}

SamplingFields read_sampling(FieldReader& body) {
  SamplingFields sampling;
  sampling.temperature = body.number("temperature", {.min = 0, .max = 2});
  sampling.top_p = body.number("top_p", {.min = 0, .max = 1});
  sampling.min_p = body.number("min_p", {.min = 0, .max = 1});
  sampling.top_k = body.integer("top_k", {.min = -1, .max = std::numeric_limits<int32_t>::max()});
  sampling.repetition_penalty = body.number("repetition_penalty", {.min = 0.01, .max = 10});
  sampling.presence_penalty = body.number("presence_penalty", {.min = -2, .max = 2});
  sampling.frequency_penalty = body.number("frequency_penalty", {.min = -2, .max = 2});
  const auto seed = body.integer("seed", {.min = std::numeric_limits<int64_t>::min(),
                                          .max = std::numeric_limits<int64_t>::max()});
  if (seed.has_value()) sampling.seed = static_cast<uint64_t>(*seed);
  read_logit_bias(body, sampling);
  return sampling;
}

// Null and empty ones mean nothing, and clients send them (R25).
std::vector<std::string> read_stop(FieldReader& body) {
  std::vector<std::string> result;
  const Json* stop = body.find("stop");
  if (stop == nullptr) return result;
  Problems& problems = body.problems();
  const auto add = [&](const Json& item, const std::string& path) {
    if (!item.is_string()) {
      add_wrong_type(problems, path, "a string", item);
    } else if (item.as_string().size() > kStopBytesMax) {
      problems.add(kOutOfRange, path,
                   path + " must have at most " + std::to_string(kStopBytesMax) + " bytes, got " +
                       std::to_string(item.as_string().size()));
    } else if (!item.as_string().empty()) {
      result.push_back(item.as_string());
    }
  };
  if (stop->is_string()) {
    add(*stop, "stop");
  } else if (!stop->is_array()) {
    add_wrong_type(problems, "stop", "a string or an array of strings", *stop);
  } else if (stop->as_array().size() > kStopMax) {
    problems.add(kTooMany, "stop",
                 "stop has " + std::to_string(stop->as_array().size()) + " strings, the limit is " +
                     std::to_string(kStopMax));
  } else {
    for (size_t i = 0; i < stop->as_array().size(); ++i) {
      if (!stop->as_array()[i].is_null()) add(stop->as_array()[i], element_path("stop", i));
    }
  }
  return result;
}

void read_stream(FieldReader& body, CommonFields& common) {
  common.stream = body.boolean("stream").value_or(false);
  const Json* options = body.find("stream_options");
  if (options == nullptr) return;
  FieldReader fields(*options, "stream_options", body.problems());
  common.include_usage = fields.boolean("include_usage").value_or(false) && common.stream;
}

void ignore(CommonFields& common, std::string path) {
  const bool plain = std::all_of(path.begin(), path.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
  });
  if (plain && path.size() <= 64 && common.ignored.size() < kIgnoredMax) {
    common.ignored.push_back(std::move(path));
  }
}

CommonFields read_common(FieldReader& body) {
  CommonFields common;
  common.model = body.text("model", kModelBytesMax).value_or("");
  common.sampling = read_sampling(body);
  common.stop = read_stop(body);
  common.n = body.integer("n", {.min = 1, .max = kChoicesMax}).value_or(1);
  common.ignore_eos = body.boolean("ignore_eos").value_or(false);
  read_stream(body, common);
  return common;
}

void read_chat_logprobs(FieldReader& body, CommonFields& common) {
  const bool logprobs = body.boolean("logprobs").value_or(false);
  const auto top = body.integer("top_logprobs", {.min = 0, .max = kTopLogprobsMax});
  if (top.has_value() && !logprobs) {
    body.problems().add(kOutOfRange, "top_logprobs",
                        "top_logprobs may be set only when logprobs is true");
  }
  if (logprobs) common.top_logprobs = top.value_or(0);
}

void check_response_format(FieldReader& body) {
  const Json* format = body.find("response_format");
  if (format == nullptr) return;
  FieldReader fields(*format, "response_format", body.problems());
  const auto type = fields.text("type", kModelBytesMax);
  if (type != "json_schema") return;  // other words: the sanitizer knows them
  const Json* wrapper = fields.find("json_schema");
  if (wrapper == nullptr) {
    body.problems().add(kMissing, "response_format.json_schema",
                        "response_format.json_schema is missing");
    return;
  }
  FieldReader inner(*wrapper, "response_format.json_schema", body.problems());
  const Json* schema = inner.find("schema");
  if (schema == nullptr) {
    body.problems().add(kMissing, inner.path_of("schema"), inner.path_of("schema") + " is missing");
  } else if (!schema->is_object() && !schema->is_bool()) {
    add_wrong_type(body.problems(), inner.path_of("schema"), "an object", *schema);
  }
}

constexpr std::string_view kTemplateSwitches[] = {"enable_thinking", "preserve_thinking",
                                                  "thinking"};

// Only switches that are known to be harmless reach a template.
void check_template_args(FieldReader& body, ChatRequest& request) {
  (void)body.text("reasoning_effort", 16);
  if (body.find("chat_template") != nullptr) ignore(request.common, "chat_template");
  const Json* kwargs = body.find("chat_template_kwargs");
  if (kwargs == nullptr) return;
  FieldReader fields(*kwargs, "chat_template_kwargs", body.problems());
  if (!kwargs->is_object()) return;
  for (const auto& member : kwargs->as_object()) {
    const std::string& key = member.first;
    const bool known = std::find(std::begin(kTemplateSwitches), std::end(kTemplateSwitches), key) !=
                       std::end(kTemplateSwitches);
    if (key == "enable_thinking") continue;  // has more spellings: the sanitizer's
    if (known) {
      (void)fields.boolean(key);
    } else if (key == "reasoning_effort") {
      (void)fields.text(key, 16);
    } else {
      ignore(request.common, "chat_template_kwargs." + key);
    }
  }
}

// Clients of the interfaces that call it `reasoning` say so with these fields.
bool wants_reasoning_alias(FieldReader& body) {
  if (body.boolean("include_reasoning").value_or(false)) return true;
  const Json* reasoning = body.find("reasoning");
  if (reasoning == nullptr) return false;
  if (!reasoning->is_object()) {
    add_wrong_type(body.problems(), "reasoning", "an object", *reasoning);
  }
  return true;
}

std::optional<std::vector<int32_t>> read_token_ids(const Json::Array& list, const std::string& path,
                                                   Problems& problems) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_integer()) {
      add_wrong_type(problems, element_path(path, i), "a token id", list[i]);
      return std::nullopt;
    }
    const int64_t id = list[i].as_integer();
    if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
      problems.add(
          kOutOfRange, element_path(path, i),
          element_path(path, i) + " must be a token id of at least 0, got " + std::to_string(id));
      return std::nullopt;
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

void read_prompt_list(const Json::Array& list, Problems& problems, CompletionRequest& request) {
  if (list.empty()) {
    problems.add(kOutOfRange, "prompt", "prompt must not be an empty array");
    return;
  }
  if (list.front().is_integer()) {
    if (auto ids = read_token_ids(list, "prompt", problems)) request.prompts.push_back(*ids);
    return;
  }
  request.listed = true;
  if (list.size() > kPromptsMax) {
    problems.add(kTooMany, "prompt",
                 "prompt has " + std::to_string(list.size()) + " entries, the limit is " +
                     std::to_string(kPromptsMax));
    return;
  }
  for (size_t i = 0; i < list.size() && !problems.first(); ++i) {
    const std::string path = element_path("prompt", i);
    if (list[i].is_string() && list.front().is_string()) {
      request.prompts.emplace_back(list[i].as_string());
    } else if (list[i].is_array() && list.front().is_array()) {
      if (list[i].as_array().empty()) {
        problems.add(kOutOfRange, path, path + " must not be an empty array");
      } else if (auto ids = read_token_ids(list[i].as_array(), path, problems)) {
        request.prompts.push_back(*ids);
      }
    } else {
      add_wrong_type(problems, path, "of the same kind as the first entry, text or token ids",
                     list[i]);
    }
  }
}

void read_prompt(FieldReader& body, CompletionRequest& request) {
  const Json* prompt = body.find("prompt");
  if (prompt == nullptr) {
    body.problems().add(kMissing, "prompt", "prompt is missing");
  } else if (prompt->is_string()) {
    request.prompts.emplace_back(prompt->as_string());
  } else if (prompt->is_array()) {
    read_prompt_list(prompt->as_array(), body.problems(), request);
  } else {
    add_wrong_type(body.problems(), "prompt", "a string, an array of strings or token ids",
                   *prompt);
  }
}

template <typename T>
Parsed<T> finish(Problems& problems, T&& value) {
  if (problems.first().has_value()) return *problems.first();
  return std::forward<T>(value);
}

}  // namespace

Parsed<ChatRequest> parse_chat_request(const Json& json) {
  Problems problems;
  FieldReader body(json, "", problems);
  ChatRequest request;
  if (!json.is_object()) return *problems.first();
  check_messages(body);
  check_tools(body);
  request.common = read_common(body);
  const IntegerRange counts{.min = 1, .max = kMaxTokensMax};
  const auto old_name = body.integer("max_tokens", counts);
  const auto new_name = body.integer("max_completion_tokens", counts);
  request.common.max_tokens = new_name.has_value() ? new_name : old_name;
  read_chat_logprobs(body, request.common);
  check_response_format(body);
  check_template_args(body, request);
  request.reasoning_alias = wants_reasoning_alias(body);
  request.add_generation_prompt = body.boolean("add_generation_prompt").value_or(true);
  for (const char* key : {"functions", "function_call", "audio", "prediction"}) {
    if (body.find(key) != nullptr) {
      problems.add(kUnsupported, key, std::string(key) + " is not supported");
    }
  }
  return finish(problems, std::move(request));
}

Parsed<CompletionRequest> parse_completion_request(const Json& json) {
  Problems problems;
  FieldReader body(json, "", problems);
  CompletionRequest request;
  if (!json.is_object()) return *problems.first();
  read_prompt(body, request);
  request.common = read_common(body);
  request.echo = body.boolean("echo").value_or(false);
  const int64_t tokens_min = request.echo ? 0 : 1;
  request.common.max_tokens = body.integer("max_tokens", {.min = tokens_min, .max = kMaxTokensMax})
                                  .value_or(kCompletionTokensDefault);
  const auto logprobs = body.integer("logprobs", {.min = 0, .max = kTopLogprobsMax});
  request.common.top_logprobs = logprobs.value_or(-1);
  if (const Json* suffix = body.find("suffix");
      suffix != nullptr && !(suffix->is_string() && suffix->as_string().empty())) {
    problems.add(kUnsupported, "suffix", "suffix is not supported");
  }
  const auto best_of = body.integer("best_of", {.min = 1, .max = kChoicesMax});
  if (best_of.has_value() && *best_of != request.common.n) {
    problems.add(kUnsupported, "best_of",
                 "best_of must equal n (" + std::to_string(request.common.n) + "), got " +
                     std::to_string(*best_of));
  }
  return finish(problems, std::move(request));
}

Parsed<TokenizeRequest> parse_tokenize_request(const Json& json) {
  Problems problems;
  FieldReader body(json, "", problems);
  TokenizeRequest request;
  if (!json.is_object()) return *problems.first();
  request.model = body.text("model", kModelBytesMax).value_or("");
  auto content = body.text("content", SIZE_MAX);
  if (!content.has_value()) problems.add(kMissing, "content", "content is missing");
  request.tokenize.content = std::move(content).value_or("");
  request.tokenize.add_special = body.boolean("add_special").value_or(false);
  request.tokenize.parse_special = body.boolean("parse_special").value_or(true);
  request.tokenize.with_pieces = body.boolean("with_pieces").value_or(false);
  return finish(problems, std::move(request));
}

Parsed<DetokenizeRequest> parse_detokenize_request(const Json& json) {
  Problems problems;
  FieldReader body(json, "", problems);
  DetokenizeRequest request;
  if (!json.is_object()) return *problems.first();
  request.model = body.text("model", kModelBytesMax).value_or("");
  const Json* tokens = body.find("tokens");
  if (tokens == nullptr) {
    problems.add(kMissing, "tokens", "tokens is missing");
  } else if (!tokens->is_array()) {
    add_wrong_type(problems, "tokens", "an array of token ids", *tokens);
  } else if (auto ids = read_token_ids(tokens->as_array(), "tokens", problems)) {
    request.detokenize.tokens = std::move(*ids);
  }
  return finish(problems, std::move(request));
}

ApiError json_error(const Error& error) {
  const char* code = error.code == Errc::too_large ? "json_limit_exceeded" : "invalid_json";
  return api_error(400, code, "the body is not usable JSON: " + error.message, error.path);
}

protocol::Sampling neutral_sampling(const SamplingFields& fields) {
  protocol::Sampling sampling;
  sampling.temperature = fields.temperature.value_or(sampling.temperature);
  sampling.top_p = fields.top_p.value_or(sampling.top_p);
  sampling.min_p = fields.min_p.value_or(sampling.min_p);
  sampling.top_k = std::max<int64_t>(fields.top_k.value_or(sampling.top_k), 0);
  sampling.repetition_penalty = fields.repetition_penalty.value_or(sampling.repetition_penalty);
  sampling.presence_penalty = fields.presence_penalty.value_or(sampling.presence_penalty);
  sampling.frequency_penalty = fields.frequency_penalty.value_or(sampling.frequency_penalty);
  sampling.logit_bias = fields.logit_bias;
  sampling.seed = fields.seed;
  if (sampling.top_p <= 0.0) {
    sampling.temperature = 0.0;
    sampling.top_p = 1.0;
  }
  return sampling;
}

SamplingFields sampling_fields(const Json& checked) {
  Problems problems;
  FieldReader body(checked, "", problems);
  return read_sampling(body);
}

Json template_args(const Json& checked) {
  Json args = Json::object();
  const Json* effort = checked.find("reasoning_effort");
  if (effort != nullptr && effort->is_string()) args.set("reasoning_effort", *effort);
  const Json* kwargs = checked.find("chat_template_kwargs");
  if (kwargs == nullptr) return args;
  for (std::string_view key : kTemplateSwitches) {
    const Json* value = kwargs->find(key);
    if (value != nullptr && value->is_bool()) args.set(key, *value);
  }
  const Json* word = kwargs->find("reasoning_effort");
  if (word != nullptr && word->is_string()) args.set("reasoning_effort", *word);
  return args;
}

}  // namespace tandem::service::wire
