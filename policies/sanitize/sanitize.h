// The request sanitizer: a chat request as the client sent it, the facts of the model and of the
// engine, and the settings go in; the request to send to that engine, or a refusal, comes out,
// together with what the gateway must do itself and a receipt of every change.
//
// Rules R1 to R11, R17 to R22, R25 to R27 and R29 to R32 (docs/sanitizer.md). Pure: no clock, no
// thread, no randomness, so two runs give the same bytes; running it on its own result changes
// nothing (but for R18's last step, which speaks to the engine); and a chat that grows keeps the
// bytes of its earlier turns. Any thread.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "policies/profile.h"

namespace tandem::policies {

// Facts of the engine that were learnt when it started, and the size of this prompt.
struct TargetFacts {
  EngineKind engine = EngineKind::own;
  bool tool_parser = true;                // it turns calls into structure itself
  bool thinking_budget = false;           // it has a field for one (own engine: true)
  bool grammar_after_reasoning = false;   // a schema's mask starts behind the thoughts (own: true)
  bool supports_n = true;                 // several choices in one call (Ollama: false)
  std::optional<int64_t> context_tokens;  // none: the room is not limited here
  int64_t prompt_tokens = 0;
  int64_t margin_tokens = 0;
};
TargetFacts default_facts(EngineKind engine);

inline constexpr int kRules = 33;  // R1 to R32; index 0 is not used

struct SanitizeSettings {
  int64_t short_call_limit_tokens = 512;               // R20, R22
  int64_t answer_reserve_tokens = 256;                 // R22
  int64_t unavoidable_reasoning_reserve_tokens = 512;  // R20
  int64_t default_max_tokens = 4096;                   // R29
  int64_t grammar_repetition_max = 2000;               // R18
  int64_t choices_max = 128;                           // R30: a larger n is refused
  bool foreign_script_retry = true;                    // R28
  std::bitset<kRules> off;                             // rules that are switched off
  bool tools_through_choice_none = true;               // R18's last step
};

// One change or one warning. `key` is the top-level key it touches; empty for a mere warning.
struct ReceiptEntry {
  int rule = 0;
  std::string key;
  std::string code;    // a warning of the list in docs/sanitizer.md; empty for a silent change
  std::string detail;  // for people
};

// An answer to the client; the engine is not called. `path` names the field, such as
// messages[2].role. `code` may be empty.
struct Rejection {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string code;
  std::string message;
  std::string path;
  int rule = 0;
};

// How often the engine is called (R30). `seeds`: one for each call, or empty when the client gave
// none.
struct Fanout {
  int64_t count = 1;
  int64_t copies = 1;  // of the one choice, towards the client
  std::vector<int64_t> seeds;
};

// What the gateway does besides sending the request.
struct GatewayDuties {
  bool parse_tool_calls = false;                 // R18
  bool validate_arguments = false;               // R18: with the client's own schemas
  bool keep_first_tool_call_only = false;        // R19
  bool validate_content = false;                 // R31
  bool retry_with_schema_without_tools = false;  // R31
  bool record_usage = false;                     // R32
  bool forward_usage = false;                    // R32: the client asked for it
  std::vector<std::string> stop_on_content;      // R25
  std::optional<int64_t> requested_max_tokens;   // R20: the answer is limited to this
};

struct Sanitized {
  Json send;
  bool thinking = false;        // the effective mode of this call
  bool asked_to_think = false;  // the client's own wish (R23)
  bool prefill = false;         // the last message is to be continued (R10)
  Fanout fanout;
  GatewayDuties duties;
  std::vector<ReceiptEntry> receipt;
  std::vector<std::string> unread;  // R27: fields that neither the rules nor the engine read
};

using SanitizeOutcome = std::variant<Sanitized, Rejection>;

SanitizeOutcome sanitize(Json request, const ModelProfile& profile, const TargetFacts& target,
                         const SanitizeSettings& settings);

}  // namespace tandem::policies
