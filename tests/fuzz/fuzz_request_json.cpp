// Bytes to JSON to both kinds of request. On success the whole result is walked, and the messages
// and tools, written out and parsed again, must come back the same.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <variant>

#include "base/json.h"
#include "base/utf8.h"
#include "service/wire/openai_request.h"

namespace {

using tandem::Json;
namespace wire = tandem::service::wire;

void require(bool condition) {
  if (!condition) std::abort();
}

size_t walk(const Json& json) {
  size_t sum = 1;
  if (json.is_string()) {
    require(tandem::utf8::is_valid(json.as_string()));
    sum += json.as_string().size();
  } else if (json.is_array()) {
    for (const Json& item : json.as_array()) sum += walk(item);
  } else if (json.is_object()) {
    for (const auto& member : json.as_object()) sum += walk(member.second);
  }
  return sum;
}

void require_round_trip(const Json& json) {
  auto again = tandem::parse_json(json.dump());
  require(again.ok());
  require(*again == json);
}

void check_error(const wire::ApiError& error) {
  require(error.status == 400 && !error.code.empty() && !error.message.empty());
  require_round_trip(wire::error_json(error));
}

void check_common(const wire::CommonFields& common) {
  require(common.n >= 1 && common.n <= wire::kChoicesMax);
  require(common.top_logprobs >= -1 && common.top_logprobs <= wire::kTopLogprobsMax);
  require(common.stop.size() <= wire::kStopMax);
  for (const auto& entry : common.sampling.logit_bias) {
    require(entry.first >= 0 && entry.second >= -100 && entry.second <= 100);
  }
  const auto sampling = wire::neutral_sampling(common.sampling);
  require(sampling.temperature >= 0 && sampling.temperature <= 2 && sampling.top_p > 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto json =
      tandem::parse_json(text, {.bytes_max = 1 << 20, .depth_max = 64, .values_max = 100'000});
  if (!json.ok()) {
    check_error(wire::json_error(json.error()));
    return 0;
  }
  require(walk(*json) > 0);
  auto chat = wire::parse_chat_request(*json);
  if (const auto* request = std::get_if<wire::ChatRequest>(&chat)) {
    check_common(request->common);
    for (const Json& message : json->find("messages")->as_array()) {
      require(message.find("role")->is_string());
    }
    require_round_trip(wire::template_args(*json));
    const auto sampling = wire::neutral_sampling(wire::sampling_fields(*json));
    require(sampling.temperature >= 0 && sampling.temperature <= 2);
  } else {
    check_error(std::get<wire::ApiError>(chat));
  }
  auto completion = wire::parse_completion_request(*json);
  if (const auto* request = std::get_if<wire::CompletionRequest>(&completion)) {
    check_common(request->common);
    require(!request->prompts.empty());
  } else {
    check_error(std::get<wire::ApiError>(completion));
  }
  auto tokenize = wire::parse_tokenize_request(*json);
  if (const auto* error = std::get_if<wire::ApiError>(&tokenize)) check_error(*error);
  auto detokenize = wire::parse_detokenize_request(*json);
  if (const auto* error = std::get_if<wire::ApiError>(&detokenize)) check_error(*error);
  return 0;
}
