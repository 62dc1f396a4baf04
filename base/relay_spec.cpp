#include "base/relay_spec.h"

#include <array>
#include <string_view>

#include "base/protocol_fields.h"

namespace tandem {
namespace {

constexpr int64_t kDayMs = int64_t{24} * 3600 * 1000;
constexpr size_t kEntriesMax = 1024;
constexpr size_t kReplicasMax = 64;

Json strings_to_json(const std::vector<std::string>& strings) {
  Json out = Json::array();
  for (const std::string& text : strings) out.push_back(text);
  return out;
}

Json table_to_json(const std::map<std::string, std::string>& table) {
  Json out = Json::object();
  for (const auto& [name, value] : table) out.set(name, value);
  return out;
}

Result<void> read_table(protocol::FieldReader& in, std::string_view name,
                        std::map<std::string, std::string>& out) {
  const Json* json = in.optional_object(name);
  TRY(in.status());
  if (json == nullptr) return {};
  for (const auto& [key, value] : json->as_object()) {
    if (!value.is_string()) {
      return make_error(Errc::corrupt, "expected a string", std::string(name) + "." + key);
    }
    out[key] = value.as_string();
  }
  return {};
}

template <typename Enum, size_t kCount>
Result<Enum> named(const std::array<Enum, kCount>& values, const char* (*name_of)(Enum) noexcept,
                   const std::string& name, const char* field) {
  for (const Enum value : values) {
    if (name == name_of(value)) return value;
  }
  return make_error(Errc::invalid_argument, "\"" + name + "\" is unknown", field);
}

Result<void> check(const RelaySpec& spec) {
  const auto wrong = [](const char* message, const char* field) {
    return make_error(Errc::invalid_argument, message, field);
  };
  if (spec.urls.empty()) return wrong("is required: where the engine answers", "urls");
  if (spec.urls.size() > kReplicasMax) return wrong("has more than 64 entries", "urls");
  if (spec.urls.size() > 1 && spec.kind != RelayKind::openai) {
    return wrong("several are for kind openai", "urls");
  }
  if (spec.kind == RelayKind::openai && spec.mode == RelayMode::raw) {
    return wrong("raw wants a kind that renders and tokenises: llama-server or vllm", "mode");
  }
  for (const std::string& url : spec.urls) {
    if (!url.starts_with("http://") && !url.starts_with("https://")) {
      return wrong("every entry begins with http:// or https://", "urls");
    }
  }
  if (!spec.command.empty() && spec.command[0].empty()) return wrong("names no program", "command");
  if (spec.environment.size() + spec.dialect.size() + spec.expected.size() > kEntriesMax) {
    return wrong("has too many entries", "environment");
  }
  return {};
}

}  // namespace

const char* relay_kind_name(RelayKind kind) noexcept {
  switch (kind) {
    case RelayKind::llama_server: return "llama-server";
    case RelayKind::vllm: return "vllm";
    case RelayKind::openai: return "openai";
  }
  return "openai";
}

const char* relay_mode_name(RelayMode mode) noexcept {
  switch (mode) {
    case RelayMode::automatic: return "auto";
    case RelayMode::raw: return "raw";
    case RelayMode::chat: return "chat";
  }
  return "auto";
}

Json RelaySpec::to_json() const {
  return Json::object({{"kind", relay_kind_name(kind)},
                       {"mode", relay_mode_name(mode)},
                       {"command", strings_to_json(command)},
                       {"stop_command", strings_to_json(stop_command)},
                       {"environment", table_to_json(environment)},
                       {"log_path", log_path},
                       {"working_directory", working_directory},
                       {"urls", strings_to_json(urls)},
                       {"key_file", key_file},
                       {"served_model", served_model},
                       {"weights_identity", weights_identity},
                       {"dialect", table_to_json(dialect)},
                       {"slots", slots},
                       {"context_tokens", context_tokens},
                       {"kv_bytes", kv_bytes},
                       {"expected", table_to_json(expected)},
                       {"start_deadline_ms", start_deadline_ms},
                       {"stop_deadline_ms", stop_deadline_ms},
                       {"health_every_ms", health_every_ms},
                       {"health_deadline_ms", health_deadline_ms}});
}

Result<RelaySpec> RelaySpec::from_json(const Json& json) {
  RelaySpec out;
  std::string kind;
  std::string mode = relay_mode_name(out.mode);
  protocol::FieldReader in(json);
  in.string("kind", kind);
  in.optional_string("mode", mode);
  in.optional_strings("command", out.command);
  in.optional_strings("stop_command", out.stop_command);
  in.optional_string("log_path", out.log_path);
  in.optional_string("working_directory", out.working_directory);
  in.optional_strings("urls", out.urls);
  in.optional_string("key_file", out.key_file);
  in.optional_string("served_model", out.served_model);
  in.optional_string("weights_identity", out.weights_identity);
  in.optional_integer("slots", out.slots, 0, 1 << 16);
  in.optional_integer("context_tokens", out.context_tokens, 0, int64_t{1} << 30);
  in.optional_integer("kv_bytes", out.kv_bytes, 0, int64_t{1} << 50);
  in.optional_integer("start_deadline_ms", out.start_deadline_ms, 1, kDayMs);
  in.optional_integer("stop_deadline_ms", out.stop_deadline_ms, 0, kDayMs);
  in.optional_integer("health_every_ms", out.health_every_ms, 10, kDayMs);
  in.optional_integer("health_deadline_ms", out.health_deadline_ms, 10, kDayMs);
  TRY(in.status());
  TRY(read_table(in, "environment", out.environment));
  TRY(read_table(in, "dialect", out.dialect));
  TRY(read_table(in, "expected", out.expected));
  constexpr std::array kKinds = {RelayKind::llama_server, RelayKind::vllm, RelayKind::openai};
  constexpr std::array kModes = {RelayMode::automatic, RelayMode::raw, RelayMode::chat};
  TRY_ASSIGN(out.kind, named(kKinds, &relay_kind_name, kind, "kind"));
  TRY_ASSIGN(out.mode, named(kModes, &relay_mode_name, mode, "mode"));
  TRY(check(out));
  return out;
}

}  // namespace tandem
