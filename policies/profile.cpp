#include "policies/profile.h"

#include <array>
#include <utility>

namespace tandem::policies {
namespace {

template <typename Kind, size_t kCount>
using NameTable = std::array<std::pair<std::string_view, Kind>, kCount>;

constexpr NameTable<EngineKind, 6> kEngineNames{{
    {"vllm", EngineKind::vllm},
    {"llama-server", EngineKind::llama_server},
    {"ollama", EngineKind::ollama},
    {"lmstudio", EngineKind::lmstudio},
    {"sglang", EngineKind::sglang},
    {"own", EngineKind::own},
}};

constexpr NameTable<ToolSyntax, 7> kSyntaxNames{{
    {"plain", ToolSyntax::plain},
    {"qwen-xml", ToolSyntax::qwen_xml},
    {"hermes", ToolSyntax::hermes},
    {"gemma4", ToolSyntax::gemma4},
    {"llama3", ToolSyntax::llama3},
    {"mistral", ToolSyntax::mistral},
    {"gpt-oss", ToolSyntax::gpt_oss},
}};

template <typename Kind, size_t kCount>
std::optional<Kind> by_name(const NameTable<Kind, kCount>& table, std::string_view name) {
  for (const auto& [known, kind] : table) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

template <typename Kind, size_t kCount>
const char* name_of(const NameTable<Kind, kCount>& table, Kind wanted) {
  for (const auto& [name, kind] : table) {
    if (kind == wanted) return name.data();
  }
  return "";
}

SamplingRow row(double temperature, double top_p, int64_t top_k, double presence,
                double repetition) {
  return SamplingRow{.temperature = temperature,
                     .top_p = top_p,
                     .top_k = top_k,
                     .min_p = 0.0,
                     .presence_penalty = presence,
                     .repetition_penalty = repetition};
}

SamplingRows same(SamplingRow both) { return SamplingRows{.thinking = both, .direct = both}; }

SamplingRows qwen38_rows() {
  return SamplingRows{.thinking = row(1.0, 0.95, 20, 0.0, 1.0),
                      .direct = row(0.7, 0.8, 20, 1.5, 1.0)};
}

SamplingRows gemma_rows() {
  return same(SamplingRow{.temperature = 1.0, .top_p = 0.95, .top_k = 64});
}

// Qwen3.5 to 3.8: one leading system message, a user message, thinking on, calls as XML.
ModelProfile modern_qwen(std::string_view family) {
  ModelProfile profile;
  profile.family = family;
  profile.system = SystemPlacement::leading;
  profile.needs_user = true;
  profile.thinking_switch = ThinkingSwitch::enable_thinking;
  profile.thinks_by_default = true;
  profile.prompt_opens_think = true;
  profile.syntax = ToolSyntax::qwen_xml;
  if (family == "qwen3.8") {
    profile.effort_scale = EffortScale::low_medium_xhigh;
    profile.rows = qwen38_rows();
  }
  return profile;
}

ModelProfile hermes(std::string_view family) {
  ModelProfile profile;
  profile.family = family;
  profile.syntax = ToolSyntax::hermes;
  if (family != "qwen2.5") {  // Qwen3 opens its think block itself, so the prompt does not
    profile.thinking_switch = ThinkingSwitch::enable_thinking;
    profile.thinks_by_default = true;
  }
  return profile;
}

ModelProfile gemma4() {
  ModelProfile profile;
  profile.family = "gemma4";
  profile.thinking_switch = ThinkingSwitch::enable_thinking;
  profile.history_thoughts = HistoryThoughts::on_open_call_turns;
  profile.syntax = ToolSyntax::gemma4;
  profile.markers_are_special_tokens = true;
  profile.rows = gemma_rows();
  return profile;
}

ModelProfile alternating(std::string_view family, ToolSyntax syntax) {
  ModelProfile profile;
  profile.family = family;
  profile.system = SystemPlacement::leading;
  profile.alternates = true;
  profile.history_thoughts = HistoryThoughts::remove;
  profile.syntax = syntax;
  if (syntax == ToolSyntax::mistral) {
    profile.nine_character_ids = true;
    profile.markers_are_special_tokens = true;
  }
  return profile;
}

ModelProfile gpt_oss() {
  ModelProfile profile;
  profile.family = "gpt-oss";
  profile.system = SystemPlacement::leading;
  profile.thinking_switch = ThinkingSwitch::effort_only;
  profile.thinks_by_default = true;
  profile.effort_scale = EffortScale::low_medium_high;
  profile.syntax = ToolSyntax::gpt_oss;
  profile.markers_are_special_tokens = true;
  return profile;
}

ModelProfile llama3() {
  ModelProfile profile;
  profile.family = "llama3";
  profile.one_call_per_message = true;
  profile.history_thoughts = HistoryThoughts::remove;
  profile.syntax = ToolSyntax::llama3;
  profile.markers_are_special_tokens = true;
  return profile;
}

bool starts_with_no_case(std::string_view text, std::string_view prefix) {
  if (text.size() < prefix.size()) return false;
  for (size_t i = 0; i < prefix.size(); ++i) {
    const char c = text[i];
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (lower != prefix[i]) return false;
  }
  return true;
}

}  // namespace

std::optional<EngineKind> engine_kind(std::string_view name) { return by_name(kEngineNames, name); }
const char* engine_kind_name(EngineKind kind) { return name_of(kEngineNames, kind); }
std::optional<ToolSyntax> tool_syntax(std::string_view name) { return by_name(kSyntaxNames, name); }
const char* tool_syntax_name(ToolSyntax syntax) { return name_of(kSyntaxNames, syntax); }

std::optional<ModelProfile> family_profile(std::string_view family) {
  if (family == "qwen3.8" || family == "qwen3.6" || family == "qwen3.5") return modern_qwen(family);
  if (family == "hermes" || family == "qwen3" || family == "qwen2.5") return hermes(family);
  if (family == "gemma4") return gemma4();
  if (family == "gemma3") return alternating(family, ToolSyntax::plain);
  if (family == "mistral") return alternating(family, ToolSyntax::mistral);
  if (family == "gpt-oss") return gpt_oss();
  if (family == "llama3") return llama3();
  if (family != "qwen3-coder" && family != "plain") return std::nullopt;
  ModelProfile profile;
  profile.family = family;
  if (family == "qwen3-coder") profile.syntax = ToolSyntax::qwen_xml;
  return profile;
}

std::optional<SamplingRows> model_sampling_rows(std::string_view model) {
  const SamplingRow coder = row(0.7, 0.8, 20, 0.0, 1.05);
  const std::pair<std::string_view, SamplingRows> table[] = {
      // The longer name of two that fit stands first.
      {"qwen3.8", qwen38_rows()},
      {"qwen3.6", qwen38_rows()},
      {"qwen3.5",
       {.thinking = row(1.0, 0.95, 20, 1.5, 1.0), .direct = row(0.7, 0.8, 20, 1.5, 1.0)}},
      {"qwen3-coder", same(coder)},
      {"qwen3", {.thinking = row(0.6, 0.95, 20, 0.0, 1.0), .direct = row(0.7, 0.8, 20, 0.0, 1.0)}},
      {"qwen2.5", same(coder)},
      {"gemma-4", gemma_rows()},
      {"gemma-3", gemma_rows()},
      {"llama-3", same(SamplingRow{.temperature = 0.6, .top_p = 0.9})},
      {"mistral-small", same(SamplingRow{.temperature = 0.15})},
      {"mistral-nemo", same(SamplingRow{.temperature = 0.3})},
      {"gpt-oss", same(SamplingRow{.temperature = 1.0, .top_p = 1.0})},
      {"smollm2", same(SamplingRow{.temperature = 0.2, .top_p = 0.9})},
  };
  for (const auto& [prefix, rows] : table) {
    if (starts_with_no_case(model, prefix)) return rows;
  }
  return std::nullopt;
}

}  // namespace tandem::policies
