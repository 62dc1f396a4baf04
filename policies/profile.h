// What a model and an engine accept, as plain data: the facts that the request rules and the answer
// parser share. A profile starts from the built-in table of families below; the configuration, the
// analysis of a chat template and the probe at load may replace single fields, and whoever does so
// records where each fact came from (FactSource). Nothing here decides anything.
//
// Values only; any thread. Names of families are those of the configuration ("qwen3.8", "gemma4",
// ...).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::policies {

enum class EngineKind : uint8_t { vllm, llama_server, ollama, lmstudio, sglang, own };
std::optional<EngineKind> engine_kind(std::string_view name);
const char* engine_kind_name(EngineKind kind);

// Where the template accepts a system message. `none`: nowhere, every one is folded.
enum class SystemPlacement : uint8_t { any, leading, none };

// The wire format of the model's raw output: tool calls and think markers (R12, R24).
enum class ToolSyntax : uint8_t { plain, qwen_xml, hermes, gemma4, llama3, mistral, gpt_oss };
std::optional<ToolSyntax> tool_syntax(std::string_view name);
const char* tool_syntax_name(ToolSyntax syntax);

// How thinking is controlled. `effort_only`: it cannot be off, only a word sets how much.
enum class ThinkingSwitch : uint8_t { none, enable_thinking, effort_only };

// Which effort words the template itself knows (R21).
enum class EffortScale : uint8_t { none, low_medium_xhigh, low_medium_high };

// What becomes of earlier thoughts (R11).
enum class HistoryThoughts : uint8_t {
  keep,               // moved to the field that the engine reads; the template decides
  remove,             // the family wants none
  on_open_call_turns  // only on call turns after the last user message
};

enum class FactSource : uint8_t { family_table, model_file, probe, configuration };

// One row of sampling values. A field that is not set is neutral (R26).
struct SamplingRow {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;  // 0: off
  std::optional<double> min_p;
  std::optional<double> presence_penalty;
  std::optional<double> repetition_penalty;
};

struct SamplingRows {
  SamplingRow thinking;
  SamplingRow direct;
};

struct ModelProfile {
  std::string family;

  // Messages
  SystemPlacement system = SystemPlacement::any;
  bool needs_user = false;            // the template raises without a user message (R6)
  bool alternates = false;            // strict user/assistant order (R7)
  bool one_call_per_message = false;  // (R8)
  bool nine_character_ids = false;    // call ids are nine letters or digits (R8)
  bool tool_turns = true;             // it writes earlier calls and results; else they become text (R8)

  // Thinking
  ThinkingSwitch thinking_switch = ThinkingSwitch::none;
  bool thinks_by_default = false;
  EffortScale effort_scale = EffortScale::none;
  HistoryThoughts history_thoughts = HistoryThoughts::keep;
  bool prompt_opens_think = false;  // with thinking on the prompt ends inside the think block

  // Output
  ToolSyntax syntax = ToolSyntax::plain;
  bool markers_are_special_tokens = false;  // the engine must be told to print them (R18)

  std::optional<SamplingRows> rows;  // none on file: neutral values
  FactSource source = FactSource::family_table;
};

// The built-in table. Known: qwen3.8, qwen3.6, qwen3.5, qwen3, qwen3-coder, qwen2.5, hermes,
// gemma4, gemma3, mistral, gpt-oss, llama3, plain. Nothing for any other name.
std::optional<ModelProfile> family_profile(std::string_view family);

// Sampling rows by model, for models whose family has rows that differ by model. `model` is matched
// without regard to case against the beginning of its name ("Qwen3.6-27B-..."). Values: model
// cards.
std::optional<SamplingRows> model_sampling_rows(std::string_view model);

}  // namespace tandem::policies
