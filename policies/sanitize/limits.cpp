// R29, R30 and R32: how much is asked, how often, and the accounting of it.
#include <algorithm>
#include <limits>

#include "policies/sanitize/steps.h"

namespace tandem::policies {
namespace {

bool is_whole(const Json& value) {
  if (value.is_integer()) return true;
  if (!value.is_number()) return false;
  const double number = value.as_double();
  return number > -9.0e15 && number < 9.0e15 &&
         number == static_cast<double>(static_cast<int64_t>(number));
}

int64_t whole(const Json& value) {
  return value.is_integer() ? value.as_integer() : static_cast<int64_t>(value.as_double());
}

// Reads a count of at least one; `count` stays as it is where the field is missing.
Refusal read_count(const Draft& draft, std::string_view key, int rule, int64_t& count) {
  const Json* value = draft.find(key);
  if (value == nullptr) return std::nullopt;
  if (!is_whole(*value) || whole(*value) < 1) {
    return refuse(rule, std::string(key), std::string(key) + " must be an integer of at least 1");
  }
  count = whole(*value);
  return std::nullopt;
}

bool is_greedy(const Draft& draft) {
  const Json* temperature = draft.find("temperature");
  return temperature != nullptr && temperature->is_number() && temperature->as_double() == 0.0;
}

}  // namespace

Refusal limit_tokens(Draft& draft) {
  int64_t asked = draft.settings.default_max_tokens;
  if (Refusal refusal = read_count(draft, "max_tokens", 27, asked)) return refusal;
  if (Refusal refusal = read_count(draft, "max_completion_tokens", 27, asked)) return refusal;
  if (!draft.on(29)) return std::nullopt;
  if (draft.target.context_tokens.has_value()) {
    const TargetFacts& target = draft.target;
    const int64_t room = *target.context_tokens - target.prompt_tokens - target.margin_tokens;
    if (room < 1) {
      Rejection rejection =
          refuse(29, "messages",
                 "the prompt has " + std::to_string(target.prompt_tokens) +
                     " tokens, which leaves no room for an answer in a context of " +
                     std::to_string(*target.context_tokens));
      rejection.code = "context_length_exceeded";
      return rejection;
    }
    asked = std::min(asked, room);
  }
  draft.set(29, "max_tokens", Json(asked), "limit of the answer set");
  draft.erase(29, "max_completion_tokens", "sent as max_tokens");
  return std::nullopt;
}

Refusal decide_choices(Draft& draft) {
  int64_t choices = 1;
  if (Refusal refusal = read_count(draft, "n", 27, choices)) return refusal;
  if (choices > draft.settings.choices_max) {
    return refuse(30, "n", "n is limited to " + std::to_string(draft.settings.choices_max));
  }
  if (!draft.on(30)) return std::nullopt;
  Fanout& fanout = draft.result.fanout;
  if (choices == 1) {
    if (!draft.target.supports_n) draft.erase(30, "n", "one choice is what this engine gives");
    return std::nullopt;
  }
  if (is_greedy(draft)) {
    fanout.copies = choices;
    draft.erase(30, "n", "greedy: one run is copied");
    return std::nullopt;
  }
  if (draft.target.supports_n) return std::nullopt;
  fanout.count = choices;
  draft.erase(30, "n", "the engine is called once for each choice");
  const Json* seed = draft.find("seed");
  if (seed == nullptr || !seed->is_integer()) return std::nullopt;
  for (int64_t i = 0; i < choices; ++i) {
    // Wraps: a seed is a bit pattern, and the sum of two signed ones may not fit.
    fanout.seeds.push_back(
        static_cast<int64_t>(static_cast<uint64_t>(seed->as_integer()) + static_cast<uint64_t>(i)));
  }
  return std::nullopt;
}

Refusal account_usage(Draft& draft) {
  const Json* stream = draft.find("stream");
  if (stream != nullptr && !stream->is_bool()) {
    return refuse(32, "stream", "stream must be true or false");
  }
  const Json* options = draft.find("stream_options");
  if (options != nullptr && !options->is_object()) {
    return refuse(32, "stream_options", "stream_options must be an object");
  }
  const Json* include = options == nullptr ? nullptr : options->find("include_usage");
  if (include != nullptr && !include->is_bool() && !include->is_null()) {
    return refuse(32, "stream_options.include_usage", "include_usage must be true or false");
  }
  if (!draft.on(32)) return std::nullopt;
  if (stream == nullptr || !stream->as_bool()) {
    draft.erase(32, "stream_options", "only a stream has options");
    return std::nullopt;
  }
  draft.result.duties.record_usage = true;
  draft.result.duties.forward_usage =
      include != nullptr && include->is_bool() && include->as_bool();
  Json wanted = options == nullptr ? Json::object() : *options;
  wanted.set("include_usage", Json(true));
  draft.set(32, "stream_options", std::move(wanted), "usage is always asked for");
  return std::nullopt;
}

}  // namespace tandem::policies
