#include <algorithm>

#include "base/overloaded.h"
#include "service/config.h"
#include "service/config_keys.h"
#include "service/sampling_row.h"

namespace tandem::service {

namespace {

std::string toml_string(std::string_view text) {
  // TOML's basic strings are JSON's, but for DEL, which the parser of the file refuses anyway.
  std::string out;
  append_json_string(out, text);
  return out;
}

ConfigTable shown_table(ValueKind kind, ConfigTable table) {
  if (kind != ValueKind::environment) return table;
  for (auto& [name, value] : table) {
    if (is_secret_name(name)) value = "(hidden)";
  }
  return table;
}

template <typename Section>
std::string value_text(const ConfigKey<Section>& key, const Section& section) {
  return std::visit(
      Overloaded{[&](std::string Section::*field) { return toml_string(section.*field); },
                 [&](std::vector<std::string> Section::*field) {
                   std::string out = "[";
                   for (const std::string& item : section.*field) {
                     if (out.size() > 1) out += ", ";
                     out += toml_string(item);
                   }
                   return out + "]";
                 },
                 [&](int64_t Section::*field) {
                   return key.kind == ValueKind::bytes
                              ? toml_string(bytes_text(section.*field))
                              : std::to_string(section.*field);
                 },
                 [&](bool Section::*field) {
                   return std::string(section.*field ? "true" : "false");
                 },
                 [&](Duration Section::*field) {
                   return toml_string(duration_text(section.*field));
                 },
                 [&](std::optional<policies::SamplingRow> Section::*field) {
                   return row_toml(section.*field);
                 },
                 [&](ConfigTable Section::*field) {
                   std::string out;
                   for (const auto& [name, value] : shown_table(key.kind, section.*field)) {
                     out += (out.empty() ? " " : ", ") + toml_string(name) + " = " + toml_string(value);
                   }
                   return "{" + out + (out.empty() ? "}" : " }");
                 }},
      key.field);
}

template <typename Section>
void append_section(std::string& out, std::string_view title,
                    std::span<const ConfigKey<Section>> keys, const Section& section) {
  out += (out.empty() ? "[" : "\n[") + std::string(title) + "]\n";
  for (const auto& key : keys) {
    out += std::string(key.name) + " = " + value_text(key, section) + '\n';
  }
}

template <typename Section>
Json section_json(std::span<const ConfigKey<Section>> keys, const Section& section) {
  Json out = Json::object();
  for (const auto& key : keys) {
    std::visit(Overloaded{[&](std::string Section::*field) { out.set(key.name, section.*field); },
                          [&](std::vector<std::string> Section::*field) {
                            Json list = Json::array();
                            for (const std::string& item : section.*field) list.push_back(item);
                            out.set(key.name, std::move(list));
                          },
                          [&](int64_t Section::*field) {
                            if (key.kind == ValueKind::bytes) {
                              out.set(key.name, bytes_text(section.*field));
                            } else {
                              out.set(key.name, section.*field);
                            }
                          },
                          [&](bool Section::*field) { out.set(key.name, section.*field); },
                          [&](Duration Section::*field) {
                            out.set(key.name, duration_text(section.*field));
                          },
                          [&](std::optional<policies::SamplingRow> Section::*field) {
                            out.set(key.name, row_json(section.*field));
                          },
                          [&](ConfigTable Section::*field) {
                            Json table = Json::object();
                            for (const auto& [name, value] : shown_table(key.kind, section.*field)) {
                              table.set(name, value);
                            }
                            out.set(key.name, std::move(table));
                          }},
               key.field);
  }
  return out;
}

template <typename Section>
std::string range_text(const ConfigKey<Section>& key) {
  switch (key.kind) {
    case ValueKind::integer: return std::to_string(key.least) + " to " + std::to_string(key.most);
    case ValueKind::bytes: return bytes_text(key.least) + " to " + bytes_text(key.most);
    case ValueKind::duration:
      return duration_text(Duration(key.least)) + " to " + duration_text(Duration(key.most));
    case ValueKind::word: {
      std::string words(key.words);
      for (size_t at = 0; (at = words.find('|', at)) != std::string::npos; at += 2) {
        words.replace(at, 1, ", ");
      }
      return words;
    }
    case ValueKind::boolean: return "true, false";
    case ValueKind::path: return "path";
    case ValueKind::name: return "name";
    case ValueKind::names: return "list of names";
    case ValueKind::hosts: return "list of host names";
    case ValueKind::rules: return "list of rules";
    case ValueKind::text: return "text";
    case ValueKind::sampling: return sampling_ranges();
    case ValueKind::texts: return "list of texts";
    case ValueKind::urls: return "list of addresses";
    case ValueKind::classes: return "list of: interactive, batch";
    case ValueKind::environment: return "table of texts";
    case ValueKind::table: return "table of texts, numbers, true and false";
  }
  CHECK_MSG(false, "value kind out of range");
}

template <typename Section>
void append_commented(std::string& out, std::string_view title, bool active,
                      std::span<const ConfigKey<Section>> keys, const Section& defaults) {
  out += "\n" + std::string(active ? "" : "# ") + "[" + std::string(title) + "]\n";
  for (const auto& key : keys) {
    std::string help(key.help);
    const std::string range = range_text(key);
    const bool plain = key.kind == ValueKind::text || key.kind == ValueKind::path;
    out += "# " + help + (plain ? "" : " (" + range + ")") + "\n";
    // Commented out: the value shown is the default, so a new version may change it.
    out += (active && key.usual ? "" : "# ") + std::string(key.name) + " = " +
           value_text(key, defaults) + "\n";
  }
}

template <typename Section>
void append_table(std::string& out, std::string_view title,
                  std::span<const ConfigKey<Section>> keys, const Section& defaults) {
  out += "\n### [" + std::string(title) + "]\n\n| key | default | values | meaning |\n|---|---|---|---|\n";
  for (const auto& key : keys) {
    std::string help(key.help);
    for (size_t at = 0; (at = help.find('|', at)) != std::string::npos; at += 2) {
      help.replace(at, 1, "\\|");
    }
    out += "| `" + std::string(key.name) + "` | " +
           (key.required ? "required" : "`" + value_text(key, defaults) + "`") + " | " +
           range_text(key) + " | " + help + " |\n";
  }
}

}  // namespace

std::string key_text(const ConfigKey<ModelConfig>& key, const ModelConfig& model) { return value_text(key, model); }

std::string config_to_toml(const Config& config) {
  std::string out;
  append_section(out, "server", server_keys(), config.server);
  append_section(out, "limits", limits_keys(), config.limits);
  append_section(out, "engines", engines_keys(), config.engines);
  append_section(out, "memory", memory_keys(), config.memory);
  append_section(out, "guard", guard_keys(), config.guard);
  append_section(out, "canary", canary_keys(), config.canary);
  append_section(out, "lease", lease_keys(), config.lease);
  append_section(out, "sanitizer", sanitizer_keys(), config.sanitizer);
  append_section(out, "queue", queue_keys(), config.queue);
  append_section(out, "model.default", model_keys(), config.default_model);
  if (config.optional_model.has_value()) {
    append_section(out, "model.optional", model_keys(), *config.optional_model);
  }
  return out;
}

Json config_to_json(const Config& config) {
  Json models = Json::object();
  models.set("default", section_json(model_keys(), config.default_model));
  if (config.optional_model.has_value()) {
    models.set("optional", section_json(model_keys(), *config.optional_model));
  }
  Json out = Json::object();
  out.set("server", section_json(server_keys(), config.server));
  out.set("limits", section_json(limits_keys(), config.limits));
  out.set("engines", section_json(engines_keys(), config.engines));
  out.set("memory", section_json(memory_keys(), config.memory));
  out.set("guard", section_json(guard_keys(), config.guard));
  out.set("canary", section_json(canary_keys(), config.canary));
  out.set("lease", section_json(lease_keys(), config.lease));
  out.set("sanitizer", section_json(sanitizer_keys(), config.sanitizer));
  out.set("queue", section_json(queue_keys(), config.queue));
  out.set("model", std::move(models));
  return out;
}

std::string config_default_file() {
  Config config;
  config.server.state_dir = "/var/lib/tandem";
  config.server.run_dir = "/run/tandem";
  config.default_model.name = "default-model";
  config.default_model.file = "/var/lib/tandem/models/default.gguf";
  config.optional_model.emplace();
  config.optional_model->name = "optional-model";
  config.optional_model->file = "/var/lib/tandem/models/optional.gguf";
  std::string out =
      "# Configuration of tandemd. A line that is commented out shows the default.\n"
      "# Sizes: \"1GiB\" (B, KiB, MiB, GiB, TiB). Durations: \"10s\" (ms, s, m, h).\n"
      "# Relative paths start at the directory of this file.\n"
      "# Check a change with: tandemctl config check FILE\n";
  append_commented(out, "server", true, server_keys(), config.server);
  append_commented(out, "limits", true, limits_keys(), config.limits);
  append_commented(out, "engines", true, engines_keys(), config.engines);
  append_commented(out, "memory", true, memory_keys(), config.memory);
  append_commented(out, "guard", true, guard_keys(), config.guard);
  append_commented(out, "canary", true, canary_keys(), config.canary);
  append_commented(out, "lease", true, lease_keys(), config.lease);
  append_commented(out, "sanitizer", true, sanitizer_keys(), config.sanitizer);
  append_commented(out, "queue", true, queue_keys(), config.queue);
  append_commented(out, "model.default", true, model_keys(), config.default_model);
  append_commented(out, "model.optional", false, model_keys(), *config.optional_model);
  // The packaged directories differ from the defaults of the struct.
  for (const std::string_view line : {"# state_dir = ", "# run_dir = "}) {
    const size_t at = out.find(line);
    CHECK(at != std::string::npos);
    out.erase(at, 2);
  }
  return out;
}

std::string config_reference_table() {
  const Config config;
  std::string out;
  append_table(out, "server", server_keys(), config.server);
  append_table(out, "limits", limits_keys(), config.limits);
  append_table(out, "engines", engines_keys(), config.engines);
  append_table(out, "memory", memory_keys(), config.memory);
  append_table(out, "guard", guard_keys(), config.guard);
  append_table(out, "canary", canary_keys(), config.canary);
  append_table(out, "lease", lease_keys(), config.lease);
  append_table(out, "sanitizer", sanitizer_keys(), config.sanitizer);
  append_table(out, "queue", queue_keys(), config.queue);
  append_table(out, "model.default] and [model.optional", model_keys(), config.default_model);
  return out;
}

}  // namespace tandem::service
