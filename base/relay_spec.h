// What tandem-relay is told about the engine of others that it stands in front of: one JSON file, written by
// tandemd with mode 0600 before it launches the relay, read once at its start. Format page:
// docs/formats/relay-spec.md. Unknown members are ignored, absent ones keep the value below.
// Pure; any thread. Errors of from_json: corrupt or invalid_argument, with the field.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace tandem {

enum class RelayKind : uint8_t { llama_server, vllm, openai };
const char* relay_kind_name(RelayKind kind) noexcept;  // "llama-server", "vllm", "openai"

// raw: the engine renders and tokenises, generates from tokens, and we read its text; chat: the engine's
// chat interface answers and its fields are taken as they are. automatic: raw, but chat for kind openai.
enum class RelayMode : uint8_t { automatic, raw, chat };
const char* relay_mode_name(RelayMode mode) noexcept;  // "auto", "raw", "chat"

struct RelaySpec {
  RelayKind kind = RelayKind::openai;
  RelayMode mode = RelayMode::automatic;

  // --- the process; an empty command: it runs already, somewhere else
  std::vector<std::string> command;
  std::vector<std::string> stop_command;           // run before SIGTERM, such as docker stop NAME
  std::map<std::string, std::string> environment;  // beside the relay's own
  std::string log_path;                            // of the command's output; empty: the relay's own
  std::string working_directory;                   // empty: the relay's own

  // --- where it answers: base URLs without a trailing "/v1". The first is the command's; more are replicas
  // (kind openai only).
  std::vector<std::string> urls;
  std::string key_file;      // bearer token, its first line; empty: none. Never logged, never on a command line
  std::string served_model;  // the name that requests carry; empty: the first that /v1/models tells

  std::string weights_identity;  // told in the welcome as weights_hash; empty: "kind served_model"
  // How this engine differs from what its kind does: "thinking_argument", "reasoning_field", ...
  std::map<std::string, std::string> dialect;

  // --- budgets, told back as facts where the engine does not say otherwise; 0: the engine decides
  int64_t slots = 0;
  int64_t context_tokens = 0;
  int64_t kv_bytes = 0;
  // Settings that were asked for, as text: "context_tokens", "slots", "kv_bytes", "kv_type",
  // "prefix_cache" (on|off), "speculation", "attention_backend". What the engine says otherwise is told as a
  // note among the facts.
  std::map<std::string, std::string> expected;

  int64_t start_deadline_ms = 30 * 60 * 1000;  // from the command's start to an engine that answers
  int64_t stop_deadline_ms = 10 * 1000;        // from its SIGTERM to SIGKILL
  int64_t health_every_ms = 30 * 1000;         // a real token is asked for when none came for so long
  int64_t health_deadline_ms = 20 * 1000;      // and must come within this

  [[nodiscard]] bool is_raw() const {
    return mode == RelayMode::raw || (mode == RelayMode::automatic && kind != RelayKind::openai);
  }
  [[nodiscard]] Json to_json() const;
  static Result<RelaySpec> from_json(const Json& json);
};

}  // namespace tandem
