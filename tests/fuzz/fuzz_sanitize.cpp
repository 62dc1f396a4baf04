// Two bytes choose the model family and the engine, the rest is a request. Whatever is sent must
// need no further repair, and its arguments must have the form of the engine.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <variant>

#include "base/json.h"
#include "policies/sanitize/answer_check.h"
#include "policies/sanitize/language_guard.h"
#include "policies/sanitize/sanitize.h"

namespace {

using tandem::Json;
namespace policies = tandem::policies;

constexpr std::string_view kFamilies[] = {"qwen3.8", "qwen3.6", "hermes", "gemma4", "gemma3",
                                          "mistral", "gpt-oss", "llama3", "plain",  "qwen2.5"};
constexpr policies::EngineKind kEngines[] = {
    policies::EngineKind::vllm,   policies::EngineKind::llama_server,
    policies::EngineKind::ollama, policies::EngineKind::lmstudio,
    policies::EngineKind::sglang, policies::EngineKind::own};

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const policies::ModelProfile profile =
      *policies::family_profile(kFamilies[data[0] % std::size(kFamilies)]);
  policies::TargetFacts target = policies::default_facts(kEngines[data[1] % std::size(kEngines)]);
  if (data[1] >= 128) target.tool_parser = false;
  if (data[0] >= 128) target.thinking_budget = !target.thinking_budget;
  policies::SanitizeSettings settings;
  settings.tools_through_choice_none = false;
  const std::string_view text(reinterpret_cast<const char*>(data + 2), size - 2);
  tandem::JsonLimits limits;
  limits.bytes_max = 1 << 16;
  const tandem::Result<Json> request = tandem::parse_json(text, limits);
  policies::foreign_script_in_korean(text, text.substr(0, text.size() / 2));
  if (!request.ok()) return 0;
  const policies::SanitizeOutcome outcome = policies::sanitize(*request, profile, target, settings);
  const auto* first = std::get_if<policies::Sanitized>(&outcome);
  if (first == nullptr) {
    require(std::get<policies::Rejection>(outcome).status == 400);
    return 0;
  }
  const policies::SanitizeOutcome again =
      policies::sanitize(first->send, profile, target, settings);
  const auto* second = std::get_if<policies::Sanitized>(&again);
  require(second != nullptr && second->send.dump() == first->send.dump());
  const policies::AnswerContext context{*request, *first, profile, target, settings};
  for (const char* finish : {"stop", "length"}) {
    policies::check_answer(context, {std::string(text), "", false, finish});
    policies::check_answer(context, {"", std::string(text), false, finish});
  }
  return 0;
}
