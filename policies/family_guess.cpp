#include "policies/family_guess.h"

namespace tandem::policies {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Templates that write calls as <function=...>. Only the newer ones know the effort word and keep
// thoughts; a name decides between two that look the same.
std::string_view xml_qwen(const ModelFileFacts& facts) {
  const std::string_view text = facts.chat_template;
  if (!has(text, "<think>") && !has(text, "enable_thinking")) return "qwen3-coder";
  if (has(text, "reasoning_effort")) return "qwen3.8";
  if (has(text, "preserve_thinking") || has(facts.name, "3.6")) return "qwen3.6";
  return "qwen3.5";
}

// Calls as JSON inside <tool_call>.
std::string_view hermes_like(const ModelFileFacts& facts) {
  if (!facts.architecture.starts_with("qwen")) return "hermes";
  return has(facts.chat_template, "enable_thinking") ? "qwen3" : "qwen2.5";
}

}  // namespace

std::string_view guess_family(const ModelFileFacts& facts) {
  const std::string_view text = facts.chat_template;
  // Markers of one family only. Gemma 4's and gpt-oss's are mentioned by no other.
  struct Sign {
    std::string_view marker;
    std::string_view family;
  };
  constexpr Sign kSigns[] = {
      {"<|channel|>", "gpt-oss"},
      {"<|turn>", "gemma4"},
      {"<start_of_turn>", "gemma3"},
      {"[TOOL_CALLS]", "mistral"},
      {"[INST]", "mistral"},
      {"<|start_header_id|>", "llama3"},
  };
  for (const Sign& sign : kSigns) {
    if (has(text, sign.marker)) return sign.family;
  }
  if (has(text, "<function=")) return xml_qwen(facts);
  if (has(text, "<tool_call>")) return hermes_like(facts);
  if (has(text, "<|im_start|>")) return "plain";
  return "";
}

}  // namespace tandem::policies
