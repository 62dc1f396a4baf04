// Messages of the engine protocol and their JSON form, the same code on both sides of the socket.
// Encoding never fails; decoding treats the peer as untrusted: wrong types, missing fields and
// numbers out of range are errors (corrupt) that name the field. Unknown fields are ignored, so a
// newer peer can add some within one protocol version. Format page: docs/formats/engine-protocol.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace tandem::protocol {

inline constexpr int64_t kVersionMin = 2;
inline constexpr int64_t kVersionMax = 2;

// hello: first frame of a connection, request id 0.
struct Hello {
  int64_t version_min = kVersionMin;
  int64_t version_max = kVersionMax;
  std::string client;  // for the engine's log

  [[nodiscard]] Json to_json() const;
  static Result<Hello> from_json(const Json& json);
};

enum class EngineState : uint8_t { loading, ready, draining, failed };
const char* engine_state_name(EngineState state) noexcept;

// What the engine read from the file and what it was told; all numbers are final once `ready`.
struct ModelFacts {
  std::string architecture;      // "qwen2"
  std::string name;              // general.name, untrusted text
  std::string file;              // path it was started with
  int64_t file_bytes = 0;
  int64_t parameters = 0;
  int64_t context_tokens_max = 0;  // of one sequence: min(configured, model)
  int64_t slots = 0;
  int64_t vocab_size = 0;
  int64_t weights_bytes = 0;
  int64_t kv_bytes = 0;            // budget
  int64_t kv_bytes_per_token = 0;
  int64_t state_bytes_per_sequence = 0;
  bool has_chat_template = false;
  bool has_draft_block = false;
  std::string isa;                 // instruction set that runs, "avx512_vnni"
  int64_t threads = 0;
  // The family of policies/profile.h that the file's architecture, name and template look like; a guess,
  // empty when there is none.
  std::string family;
  // Sampling defaults from the file (general.sampling.*); an object, may be empty.
  Json sampling = Json::object();
  // Settings that it has otherwise than it was asked for, a text each that names both values: "kv_type: asked
  // fp8, got auto". Of engines of others (base/relay_spec.h, `expected`).
  std::vector<std::string> notes = {};

  [[nodiscard]] Json to_json() const;
  static Result<ModelFacts> from_json(const Json& json);
};

// welcome: answer to hello. While loading, `facts` is empty; a `state` frame follows later.
struct Welcome {
  int64_t version = kVersionMax;
  std::string instance_id;   // random per engine process
  int64_t pid = 0;
  std::string model;         // configured name
  std::string weights_hash;  // identity of the weights file(s)
  std::string config_hash;   // as given by --config-hash: a different one means an ordered stop
  std::string lease_page;    // id of the lease page it maps; empty: none
  EngineState state = EngineState::loading;
  std::optional<ModelFacts> facts;  // set once ready

  [[nodiscard]] Json to_json() const;
  static Result<Welcome> from_json(const Json& json);
};

// state: pushed to every connection when it changes. `message` says why on failed.
struct StateChange {
  EngineState state = EngineState::loading;
  std::string message;
  std::optional<ModelFacts> facts;

  [[nodiscard]] Json to_json() const;
  static Result<StateChange> from_json(const Json& json);
};

// prepare: render and tokenise off the step loop. The engine keeps the prompt under this request id
// until `release` or the end of the connection; several submits may refer to it.
struct PrepareChat {
  Json messages = Json::array();    // as the template wants them (arguments as objects)
  Json tools;                       // null: none
  Json template_args = Json::object();
  bool add_generation_prompt = true;
  // The last message is the beginning of the answer: the prompt ends with its content.
  bool continue_final_message = false;
};
struct PrepareText {
  std::string text;
  bool add_special = true;     // BOS where the model wants it
  bool parse_special = false;  // special tokens in the text are recognised
};
struct PrepareTokens {
  std::vector<int32_t> tokens;  // ids are checked against the vocabulary
};
// What the answer must be. It is compiled with the prompt, off the step loop: a schema that cannot be
// enforced fails the prepare (invalid_argument, the path inside the schema, all keywords in the message).
enum class ConstraintKind : uint8_t { json_object, json_schema, tool_call };
const char* constraint_kind_name(ConstraintKind kind) noexcept;
struct Constraint {
  ConstraintKind kind = ConstraintKind::json_object;
  Json schema;               // json_schema
  Json tools;                // tool_call: declarations as a request has them
  std::string tool_name;     // tool_call: the only one allowed; empty: any
  std::string syntax;        // tool_call: a name of policies::ToolSyntax
  bool parallel_calls = true;  // tool_call: more than one may follow
};
struct Prepare {
  std::variant<PrepareChat, PrepareText, PrepareTokens> input;
  std::optional<Constraint> constraint;
  // Of the prefix cache: prompts with different salts share nothing and cannot tell what others have sent.
  std::string cache_salt = {};

  [[nodiscard]] Json to_json() const;
  static Result<Prepare> from_json(const Json& json);
};

// prepared: answer to prepare.
struct Prepared {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;             // what a submit now would not have to compute
  std::vector<int64_t> boundaries;       // token counts at which messages end, ascending
  int64_t answer_tokens_min = 0;         // of the constraint: fewer can never be a whole answer
  std::vector<std::string> warnings;     // parts of a tool's schema that are not enforced

  [[nodiscard]] Json to_json() const;
  static Result<Prepared> from_json(const Json& json);
};

// Neutral values: nothing is changed by a field left at its default.
struct Sampling {
  double temperature = 1.0;  // 0: greedy
  double top_p = 1.0;
  double min_p = 0.0;
  int64_t top_k = 0;         // <= 0: off
  double repetition_penalty = 1.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  std::vector<std::pair<int32_t, double>> logit_bias;
  std::optional<uint64_t> seed;  // none: the engine draws one

  [[nodiscard]] Json to_json() const;
  static Result<Sampling> from_json(const Json& json);
};

// How the raw text of the model is read (policies/parse/parse.h). Names and rules are those of policies.
struct AnswerFormat {
  std::string syntax;  // a name of policies::ToolSyntax
  bool thinking_open = false;  // the prompt ended inside the think block
  // The prompt did not open the block, the model is to think: with a constraint the engine opens it in
  // the model's words, and the constraint begins behind it.
  bool thinking_begins = false;
  Json tools;                  // the client's declarations; null: none
  Json tool_choice;            // the client's; null: none
  bool parallel_calls = true;
  bool nine_character_ids = false;
  std::string id_seed;
  std::vector<int32_t> rules_off;  // numbers of rules

  [[nodiscard]] Json to_json() const;
  static Result<AnswerFormat> from_json(const Json& json);
};

// submit: generate one choice from a prepared prompt. Answered by events, the last of which is a
// finish, or by one `failed` frame: exactly one of the two ends the request.
struct Submit {
  uint64_t prompt_id = 0;  // request id of the prepare
  Sampling sampling;
  int64_t max_tokens = 0;  // >= 1 (or 0 with prompt_logprobs: score only)
  std::vector<std::string> stop;
  int64_t top_logprobs = -1;     // -1: no log-probabilities; 0: of the sampled token; up to 20 more
  bool prompt_logprobs = false;  // send one prompt event before the first token
  bool ignore_eos = false;
  bool keep_special = false;     // special tokens appear in the text
  // None: the text goes out as it is. Set: events are typed, stop strings apply to content only.
  std::optional<AnswerFormat> format;
  // The think block is closed after this many tokens; -1: no budget. Wants a format.
  int64_t thinking_tokens_max = -1;
  // Of max_tokens, kept for the answer: the think block is closed when no more are left.
  int64_t answer_tokens_reserved = 0;
  // Class of the request: 0 goes first, larger ones wait for it and give their pages up before it does.
  int64_t priority = 0;
  int64_t credit = 1024;         // token events the client will take before it grants more

  [[nodiscard]] Json to_json() const;
  static Result<Submit> from_json(const Json& json);
};

struct TokenLogprob {
  int32_t token = 0;
  std::string bytes;     // of the token, any bytes
  double logprob = 0.0;  // natural, of the model's own softmax

  [[nodiscard]] Json to_json() const;
  static Result<TokenLogprob> from_json(const Json& json);
};

struct ScoredToken {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // descending; at most top_logprobs

  [[nodiscard]] Json to_json() const;
  static Result<ScoredToken> from_json(const Json& json);
};

// event: everything that happens to a submitted request. Each generated token is one content (or
// reasoning) event, even while its text is held back for a stop string, a marker or half a character.
// With an answer format a token may release text of both parts and calls: what does not fit its own event
// follows it in order, text as content events without a token (which need no credit and count nothing).
inline constexpr int32_t kNoToken = -1;
struct ContentEvent {
  std::string text;  // UTF-8, whole characters; may be empty
  int32_t token = 0;  // or kNoToken
  bool reasoning = false;            // text belongs to the thought, not to the answer
  std::optional<ScoredToken> score;  // when log-probabilities were asked for
};
struct PromptEvent {  // the first prompt token has no logprob: its entry is NaN, null in JSON
  std::vector<ScoredToken> tokens;
};
struct ToolCallEvent {  // whole calls only
  int64_t index = 0;
  std::string id;
  std::string name;
  std::string arguments;  // JSON text
};
enum class FinishReason : uint8_t { stop, length, tool_calls, cancelled };
const char* finish_reason_name(FinishReason reason) noexcept;

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;
};
struct Timing {
  int64_t queue_us = 0;    // submit to first step
  int64_t prefill_us = 0;  // first step to first token
  int64_t decode_us = 0;   // first token to last
};
struct Warning {
  int64_t rule = 0;
  std::string code;    // stable; docs/sanitizer.md
  std::string detail;  // for people
};
struct FinishEvent {  // terminal
  FinishReason reason = FinishReason::stop;
  std::string text;           // rest of the content that was held back
  std::string stop_sequence;  // the stop string that matched, if any
  Usage usage;
  Timing timing;
  std::vector<Warning> warnings;
  bool call_missing = false;  // a call was forced, the answer ended without one
};
struct Event {
  std::variant<ContentEvent, PromptEvent, ToolCallEvent, FinishEvent> body;

  [[nodiscard]] bool terminal() const { return std::holds_alternative<FinishEvent>(body); }
  [[nodiscard]] Json to_json() const;
  static Result<Event> from_json(const Json& json);
};

// failed: terminal answer to any request. Errc travels by name. A malformed payload still reads as an
// error (corrupt), since the request has failed either way.
Json error_to_json(const Error& error);
Error error_from_json(const Json& json);

struct Credit {
  int64_t events = 0;

  [[nodiscard]] Json to_json() const;
  static Result<Credit> from_json(const Json& json);
};

// tokenize / tokens and detokenize / text, in llama-server's meaning of the flags.
struct Tokenize {
  std::string content;
  bool add_special = false;
  bool parse_special = true;
  bool with_pieces = false;

  [[nodiscard]] Json to_json() const;
  static Result<Tokenize> from_json(const Json& json);
};
struct Tokens {
  std::vector<int32_t> tokens;
  std::vector<std::string> pieces;  // bytes of each token when asked for

  [[nodiscard]] Json to_json() const;
  static Result<Tokens> from_json(const Json& json);
};
struct Detokenize {
  std::vector<int32_t> tokens;

  [[nodiscard]] Json to_json() const;
  static Result<Detokenize> from_json(const Json& json);
};
struct Text {
  std::string text;

  [[nodiscard]] Json to_json() const;
  static Result<Text> from_json(const Json& json);
};

// resize: changes what the engine may hold, between two steps; what is absent stays as it is. Nothing
// that runs is dropped and no greedy token changes. Raising fails with the numbers when the memory is not
// there, and then nothing has changed. Lowering below what running requests hold is a target: no new
// request passes it, and it is reached as they end.
struct Resize {
  std::optional<int64_t> kv_bytes;      // budget of KV pages, cut to whole pages
  std::optional<int64_t> slots;         // requests that run at once
  std::optional<int64_t> batch_tokens;  // rows of one step; never below slots and one block of a prompt
  // Shedding: prompt tokens that one step computes at most, in whole blocks; 0: no such limit.
  std::optional<int64_t> shed_chunk_tokens;
  // Shedding: true drops the prefix cache with its checkpoints and keeps nothing until false.
  std::optional<bool> drop_prefix_cache = {};

  [[nodiscard]] Json to_json() const;
  static Result<Resize> from_json(const Json& json);
};

// resized: what holds now.
struct Resized {
  int64_t kv_bytes = 0;           // reserved now
  int64_t kv_bytes_target = 0;    // below kv_bytes while running requests need more
  int64_t kv_bytes_least = 0;     // smallest that accepted requests let it be now
  int64_t slots = 0;              // target; running above it means pending
  int64_t running = 0;
  int64_t batch_tokens = 0;
  int64_t shed_chunk_tokens = 0;  // 0: none
  int64_t ledger_bytes = 0;       // sum of reservations
  bool pending = false;           // a target waits for requests to end
  std::string message;            // why it is pending; empty when it is not

  [[nodiscard]] Json to_json() const;
  static Result<Resized> from_json(const Json& json);
};

// stats_reply: gauges and counters of the engine since its start.
struct Stats {
  EngineState state = EngineState::loading;
  int64_t running = 0;  // sequences that hold a slot
  int64_t waiting = 0;
  int64_t slots = 0;
  int64_t kv_pages_total = 0;
  int64_t kv_pages_free = 0;
  int64_t kv_pages_cached = 0;
  int64_t kv_pages_owned = 0;
  int64_t kv_page_bytes = 0;
  int64_t prompt_tokens = 0;      // counters
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t requests_finished = 0;
  int64_t requests_cancelled = 0;
  int64_t requests_failed = 0;
  int64_t steps = 0;
  int64_t step_us_total = 0;
  int64_t ledger_bytes = 0;       // sum of reservations
  int64_t resident_bytes = 0;
  int64_t anonymous_bytes = 0;
  // Of an engine that is older than these, all 0.
  int64_t ledger_weights_bytes = 0;  // by tag; they sum up to ledger_bytes
  int64_t ledger_kv_bytes = 0;
  int64_t ledger_recurrent_state_bytes = 0;
  int64_t ledger_workspace_bytes = 0;
  int64_t ledger_tokenizer_bytes = 0;
  int64_t ledger_checkpoint_bytes = 0;
  int64_t weights_mapped_bytes = 0;  // of the weights: pages of the file, which the kernel may take back
  int64_t committed_bytes = 0;       // of its rights: what MemAvailable shows as gone
  int64_t unspent_bytes = 0;         // of its rights: what it may still take (docs/memory.md)
  int64_t kv_bytes_target = 0;       // a resize that waits, else the budget
  int64_t batch_tokens = 0;
  int64_t shed_chunk_tokens = 0;
  int64_t preemptions = 0;           // counter
  // Prefix cache (docs/prefix-cache.md). Tokens and queries are of first starts of requests that may use it;
  // prefix_queries counts those with more than two pages of prompt.
  int64_t prefix_cache_on = 0;       // 1: it keeps prefixes now
  int64_t prefix_queries = 0;        // counters
  int64_t prefix_hits = 0;
  int64_t prefix_query_tokens = 0;   // of which cached_tokens were found
  int64_t prefix_stored_tokens = 0;  // whose keys and values were found, with a state to start from or not
  int64_t prefix_pages_evicted = 0;
  int64_t checkpoints_made = 0;
  int64_t checkpoints_evicted = 0;
  int64_t checkpoints = 0;           // kept now, and room for so many
  int64_t checkpoints_max = 0;
  int64_t kv_pages_shared = 0;       // of kv_pages_cached: running requests use them
  // The device lease (docs/lease.md); all 0 without one.
  int64_t lease_units = 0;           // counters
  int64_t lease_served_us = 0;       // device time
  int64_t lease_waits = 0;           // acquired after waiting, and
  int64_t lease_wait_us_total = 0;   // for how long
  int64_t lease_hand_overs = 0;      // inside steps
  int64_t lease_broken = 0;          // of dead holders, by this engine
  int64_t lease_bypassed = 0;        // of live holders, by this engine
  int64_t lease_overruns = 0;        // of this engine, by the other one
  int64_t lease_wait_p50_us = 0;     // of the last 1,024 waits
  int64_t lease_wait_p99_us = 0;
  int64_t lease_quantum_us = 0;      // in force
  int64_t lease_solo_step_us = 0;    // device time of its usual decode step
  int64_t lease_error_permille = 0;  // median error of predicted unit times

  [[nodiscard]] Json to_json() const;
  static Result<Stats> from_json(const Json& json);
};

}  // namespace tandem::protocol
