#include "base/protocol.h"

#include "base/protocol_fields.h"
#include "base/utf8.h"

namespace tandem::protocol {

const char* engine_state_name(EngineState state) noexcept {
  switch (state) {
    case EngineState::loading: return "loading";
    case EngineState::ready: return "ready";
    case EngineState::draining: return "draining";
    case EngineState::failed: return "failed";
  }
  return "failed";
}

namespace {

Result<EngineState> engine_state_from(const std::string& name) {
  for (const auto state : {EngineState::loading, EngineState::ready, EngineState::draining,
                           EngineState::failed}) {
    if (name == engine_state_name(state)) return state;
  }
  return make_error(Errc::corrupt, "unknown engine state", "state");
}

Result<void> read_facts(FieldReader& in, std::optional<ModelFacts>& out) {
  const Json* json = in.optional_object("facts");
  TRY(in.status());
  if (json != nullptr) {
    TRY_ASSIGN(out, ModelFacts::from_json(*json));
  }
  return {};
}

}  // namespace

Json Hello::to_json() const {
  return Json::object({{"min", version_min}, {"max", version_max}, {"client", client}});
}

Result<Hello> Hello::from_json(const Json& json) {
  Hello out;
  FieldReader in(json);
  in.integer("min", out.version_min, 0, 1 << 20);
  in.integer("max", out.version_max, 0, 1 << 20);
  in.string("client", out.client);
  TRY(in.status());
  return out;
}

Json ModelFacts::to_json() const {
  Json said = Json::array();
  for (const std::string& note : notes) said.push_back(note);
  return Json::object({{"architecture", architecture},
                       {"name", name},
                       {"file", file},
                       {"file_bytes", file_bytes},
                       {"parameters", parameters},
                       {"context_tokens_max", context_tokens_max},
                       {"slots", slots},
                       {"vocab_size", vocab_size},
                       {"weights_bytes", weights_bytes},
                       {"kv_bytes", kv_bytes},
                       {"kv_bytes_per_token", kv_bytes_per_token},
                       {"state_bytes_per_sequence", state_bytes_per_sequence},
                       {"has_chat_template", has_chat_template},
                       {"has_draft_block", has_draft_block},
                       {"isa", isa},
                       {"threads", threads},
                       {"family", family},
                       {"sampling", sampling},
                       {"notes", std::move(said)}});
}

Result<ModelFacts> ModelFacts::from_json(const Json& json) {
  ModelFacts out;
  FieldReader in(json);
  in.string("architecture", out.architecture);
  in.string("name", out.name);
  in.string("file", out.file);
  in.integer("file_bytes", out.file_bytes, 0);
  in.integer("parameters", out.parameters, 0);
  in.integer("context_tokens_max", out.context_tokens_max, 1);
  in.integer("slots", out.slots, 1);
  in.integer("vocab_size", out.vocab_size, 1);
  in.integer("weights_bytes", out.weights_bytes, 0);
  in.integer("kv_bytes", out.kv_bytes, 0);
  in.integer("kv_bytes_per_token", out.kv_bytes_per_token, 0);
  in.integer("state_bytes_per_sequence", out.state_bytes_per_sequence, 0);
  in.boolean("has_chat_template", out.has_chat_template);
  in.boolean("has_draft_block", out.has_draft_block);
  in.string("isa", out.isa);
  in.integer("threads", out.threads, 0);
  in.optional_string("family", out.family);
  if (const Json* sampling = in.optional_object("sampling")) out.sampling = *sampling;
  in.optional_strings("notes", out.notes);
  TRY(in.status());
  return out;
}

Json Welcome::to_json() const {
  Json json = Json::object({{"version", version},
                            {"instance_id", instance_id},
                            {"pid", pid},
                            {"model", model},
                            {"weights_hash", weights_hash},
                            {"config_hash", config_hash},
                            {"lease_page", lease_page},
                            {"state", engine_state_name(state)}});
  if (facts) json.set("facts", facts->to_json());
  return json;
}

Result<Welcome> Welcome::from_json(const Json& json) {
  Welcome out;
  std::string state;
  FieldReader in(json);
  in.integer("version", out.version, 0, 1 << 20);  // whoever adopts an engine judges it
  in.string("instance_id", out.instance_id);
  in.integer("pid", out.pid, 0);
  in.string("model", out.model);
  in.string("weights_hash", out.weights_hash);
  in.string("config_hash", out.config_hash);
  in.optional_string("lease_page", out.lease_page);
  in.string("state", state);
  TRY(in.status());
  TRY_ASSIGN(out.state, engine_state_from(state));
  TRY(read_facts(in, out.facts));
  return out;
}

Json StateChange::to_json() const {
  Json json = Json::object({{"state", engine_state_name(state)}, {"message", message}});
  if (facts) json.set("facts", facts->to_json());
  return json;
}

Result<StateChange> StateChange::from_json(const Json& json) {
  StateChange out;
  std::string state;
  FieldReader in(json);
  in.string("state", state);
  in.optional_string("message", out.message);
  TRY(in.status());
  TRY_ASSIGN(out.state, engine_state_from(state));
  TRY(read_facts(in, out.facts));
  return out;
}

Json Credit::to_json() const { return Json::object({{"events", events}}); }

Result<Credit> Credit::from_json(const Json& json) {
  Credit out;
  FieldReader in(json);
  in.integer("events", out.events, 1, int64_t{1} << 32);
  TRY(in.status());
  return out;
}

Json Tokenize::to_json() const {
  return Json::object({{"content", content},
                       {"add_special", add_special},
                       {"parse_special", parse_special},
                       {"with_pieces", with_pieces}});
}

Result<Tokenize> Tokenize::from_json(const Json& json) {
  Tokenize out;
  FieldReader in(json);
  in.string("content", out.content);
  in.boolean("add_special", out.add_special);
  in.boolean("parse_special", out.parse_special);
  in.boolean("with_pieces", out.with_pieces);
  TRY(in.status());
  return out;
}

Json Tokens::to_json() const {
  Json json = Json::object({{"tokens", token_ids_to_json(tokens)}});
  if (!pieces.empty()) {
    Json list = Json::array();
    for (const std::string& piece : pieces) list.push_back(bytes_to_json(piece));
    json.set("pieces", std::move(list));
  }
  return json;
}

Result<Tokens> Tokens::from_json(const Json& json) {
  Tokens out;
  FieldReader in(json);
  in.token_ids("tokens", out.tokens);
  const Json* pieces = in.optional_array("pieces");
  TRY(in.status());
  if (pieces != nullptr) {
    for (const Json& piece : pieces->as_array()) {
      TRY_ASSIGN(std::string bytes, bytes_from_json(piece, "pieces"));
      out.pieces.push_back(std::move(bytes));
    }
    if (out.pieces.size() != out.tokens.size()) {
      return make_error(Errc::corrupt, "not one piece per token", "pieces");
    }
  }
  return out;
}

Json Detokenize::to_json() const { return Json::object({{"tokens", token_ids_to_json(tokens)}}); }

Result<Detokenize> Detokenize::from_json(const Json& json) {
  Detokenize out;
  FieldReader in(json);
  in.token_ids("tokens", out.tokens);
  TRY(in.status());
  return out;
}

Json Text::to_json() const { return Json::object({{"text", text}}); }

Result<Text> Text::from_json(const Json& json) {
  Text out;
  FieldReader in(json);
  in.string("text", out.text);
  TRY(in.status());
  return out;
}

namespace {

constexpr int64_t kBytesMax = int64_t{1} << 50;
constexpr int64_t kSlotsMax = 1024;
constexpr int64_t kBatchTokensMax = 1 << 16;

}  // namespace

Json Resize::to_json() const {
  Json json = Json::object();
  if (kv_bytes) json.set("kv_bytes", *kv_bytes);
  if (slots) json.set("slots", *slots);
  if (batch_tokens) json.set("batch_tokens", *batch_tokens);
  if (shed_chunk_tokens) json.set("shed_chunk_tokens", *shed_chunk_tokens);
  if (drop_prefix_cache) json.set("drop_prefix_cache", *drop_prefix_cache);
  return json;
}

Result<Resize> Resize::from_json(const Json& json) {
  Resize out;
  FieldReader in(json);
  in.optional_integer("kv_bytes", out.kv_bytes, 1, kBytesMax);
  in.optional_integer("slots", out.slots, 1, kSlotsMax);
  in.optional_integer("batch_tokens", out.batch_tokens, 1, kBatchTokensMax);
  in.optional_integer("shed_chunk_tokens", out.shed_chunk_tokens, 0, kBatchTokensMax);
  if (json.find("drop_prefix_cache") != nullptr) {
    in.boolean("drop_prefix_cache", out.drop_prefix_cache.emplace());
  }
  TRY(in.status());
  return out;
}

Json Resized::to_json() const {
  return Json::object({{"kv_bytes", kv_bytes},
                       {"kv_bytes_target", kv_bytes_target},
                       {"kv_bytes_least", kv_bytes_least},
                       {"slots", slots},
                       {"running", running},
                       {"batch_tokens", batch_tokens},
                       {"shed_chunk_tokens", shed_chunk_tokens},
                       {"ledger_bytes", ledger_bytes},
                       {"pending", pending},
                       {"message", message}});
}

Result<Resized> Resized::from_json(const Json& json) {
  Resized out;
  FieldReader in(json);
  in.integer("kv_bytes", out.kv_bytes, 0);
  in.integer("kv_bytes_target", out.kv_bytes_target, 0);
  in.integer("kv_bytes_least", out.kv_bytes_least, 0);
  in.integer("slots", out.slots, 1);
  in.integer("running", out.running, 0);
  in.integer("batch_tokens", out.batch_tokens, 1);
  in.integer("shed_chunk_tokens", out.shed_chunk_tokens, 0);
  in.integer("ledger_bytes", out.ledger_bytes, 0);
  in.boolean("pending", out.pending);
  in.string("message", out.message);
  TRY(in.status());
  return out;
}

namespace {

struct StatsField {
  const char* name;
  int64_t Stats::*member;
};

constexpr StatsField kStatsFields[] = {
    {"running", &Stats::running},
    {"waiting", &Stats::waiting},
    {"slots", &Stats::slots},
    {"kv_pages_total", &Stats::kv_pages_total},
    {"kv_pages_free", &Stats::kv_pages_free},
    {"kv_pages_cached", &Stats::kv_pages_cached},
    {"kv_pages_owned", &Stats::kv_pages_owned},
    {"kv_page_bytes", &Stats::kv_page_bytes},
    {"prompt_tokens", &Stats::prompt_tokens},
    {"completion_tokens", &Stats::completion_tokens},
    {"cached_tokens", &Stats::cached_tokens},
    {"requests_finished", &Stats::requests_finished},
    {"requests_cancelled", &Stats::requests_cancelled},
    {"requests_failed", &Stats::requests_failed},
    {"steps", &Stats::steps},
    {"step_us_total", &Stats::step_us_total},
    {"ledger_bytes", &Stats::ledger_bytes},
    {"resident_bytes", &Stats::resident_bytes},
    {"anonymous_bytes", &Stats::anonymous_bytes},
};

constexpr StatsField kNewerStatsFields[] = {
    {"ledger_weights_bytes", &Stats::ledger_weights_bytes},
    {"ledger_kv_bytes", &Stats::ledger_kv_bytes},
    {"ledger_recurrent_state_bytes", &Stats::ledger_recurrent_state_bytes},
    {"ledger_workspace_bytes", &Stats::ledger_workspace_bytes},
    {"ledger_tokenizer_bytes", &Stats::ledger_tokenizer_bytes},
    {"ledger_checkpoint_bytes", &Stats::ledger_checkpoint_bytes},
    {"weights_mapped_bytes", &Stats::weights_mapped_bytes},
    {"committed_bytes", &Stats::committed_bytes},
    {"unspent_bytes", &Stats::unspent_bytes},
    {"kv_bytes_target", &Stats::kv_bytes_target},
    {"batch_tokens", &Stats::batch_tokens},
    {"shed_chunk_tokens", &Stats::shed_chunk_tokens},
    {"preemptions", &Stats::preemptions},
    {"prefix_cache_on", &Stats::prefix_cache_on},
    {"prefix_queries", &Stats::prefix_queries},
    {"prefix_hits", &Stats::prefix_hits},
    {"prefix_query_tokens", &Stats::prefix_query_tokens},
    {"prefix_stored_tokens", &Stats::prefix_stored_tokens},
    {"prefix_pages_evicted", &Stats::prefix_pages_evicted},
    {"checkpoints_made", &Stats::checkpoints_made},
    {"checkpoints_evicted", &Stats::checkpoints_evicted},
    {"checkpoints", &Stats::checkpoints},
    {"checkpoints_max", &Stats::checkpoints_max},
    {"kv_pages_shared", &Stats::kv_pages_shared},
    {"lease_units", &Stats::lease_units},
    {"lease_served_us", &Stats::lease_served_us},
    {"lease_waits", &Stats::lease_waits},
    {"lease_wait_us_total", &Stats::lease_wait_us_total},
    {"lease_hand_overs", &Stats::lease_hand_overs},
    {"lease_broken", &Stats::lease_broken},
    {"lease_bypassed", &Stats::lease_bypassed},
    {"lease_overruns", &Stats::lease_overruns},
    {"lease_wait_p50_us", &Stats::lease_wait_p50_us},
    {"lease_wait_p99_us", &Stats::lease_wait_p99_us},
    {"lease_quantum_us", &Stats::lease_quantum_us},
    {"lease_solo_step_us", &Stats::lease_solo_step_us},
    {"lease_error_permille", &Stats::lease_error_permille},
};

}  // namespace

Json Stats::to_json() const {
  Json json = Json::object({{"state", engine_state_name(state)}});
  for (const StatsField& field : kStatsFields) json.set(field.name, this->*field.member);
  for (const StatsField& field : kNewerStatsFields) json.set(field.name, this->*field.member);
  return json;
}

Result<Stats> Stats::from_json(const Json& json) {
  Stats out;
  std::string state;
  FieldReader in(json);
  in.string("state", state);
  for (const StatsField& field : kStatsFields) in.integer(field.name, out.*field.member, 0);
  for (const StatsField& field : kNewerStatsFields) {
    in.optional_integer(field.name, out.*field.member, 0, INT64_MAX);
  }
  TRY(in.status());
  TRY_ASSIGN(out.state, engine_state_from(state));
  return out;
}

// Both may repeat what a client sent, to any length and with bytes that take six in JSON: cut here, an error
// always fits into a frame.
Json error_to_json(const Error& error) {
  constexpr size_t kMessageBytesMax = 4096;
  constexpr size_t kPathBytesMax = 1024;
  const auto cut = [](std::string_view text, size_t bytes_max) {
    if (text.size() <= bytes_max) return text;
    return text.substr(0, utf8::complete_prefix(text.substr(0, bytes_max)));
  };
  Json json = Json::object(
      {{"code", errc_name(error.code)}, {"message", cut(error.message, kMessageBytesMax)}});
  if (!error.path.empty()) json.set("path", cut(error.path, kPathBytesMax));
  return json;
}

Error error_from_json(const Json& json) {
  std::string code;
  Error out;
  FieldReader in(json);
  in.string("code", code);
  in.string("message", out.message);
  in.optional_string("path", out.path);
  if (in.status().ok()) {
    for (const Errc candidate : kAllErrcs) {
      if (code != errc_name(candidate)) continue;
      out.code = candidate;
      return out;
    }
  }
  return make_error(Errc::corrupt, "the engine failed the request with a malformed error");
}

}  // namespace tandem::protocol
