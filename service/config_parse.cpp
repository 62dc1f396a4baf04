// toml++ 3.3 asserts that a table header starts with a key before it reports, as an error, that it does
// not ("[$x]"): without NDEBUG a bad file would abort us, with it the assertion is an assumption and the
// check may be compiled away. An empty assertion leaves the error.
#undef NDEBUG
#define TOML_ASSERT(expression) static_assert(true)
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/overloaded.h"
#include "service/config.h"
#include "service/config_keys.h"
#include "service/config_units.h"

namespace tandem::service {
namespace {

constexpr size_t kConfigBytesMax = size_t{1} << 20;
constexpr size_t kSocketPathBytesMax = 107;  // sun_path without its terminator

int64_t line_of(const toml::node& node) { return static_cast<int64_t>(node.source().begin.line); }

std::string json_quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text.substr(0, 80));
  return out;
}

// Lexical only: the file system is not asked, so that the parser stays pure.
std::string absolute(const std::string& base_dir, const std::string& path) {
  if (path.empty() || path.front() == '/' || base_dir.empty()) return path;
  return base_dir + (base_dir.back() == '/' ? "" : "/") + path;
}

std::string_view toml_type_name(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return "an array";
  if (node.is_string()) return "a string";
  if (node.is_integer()) return "an integer";
  if (node.is_floating_point()) return "a fraction";
  if (node.is_boolean()) return "a boolean";
  return "a date or time";
}

class Reader {
 public:
  Reader(std::string base_dir, std::vector<ConfigProblem>& problems)
      : base_dir_(std::move(base_dir)), problems_(problems) {}

  void problem(int64_t line, std::string key, std::string message) {
    problems_.push_back({line, std::move(key), std::move(message)});
  }

  template <typename Section>
  void section(const toml::table& table, const std::string& prefix,
               std::span<const ConfigKey<Section>> keys, Section& out) {
    for (const auto& [name, node] : table) {
      const auto key = std::find_if(keys.begin(), keys.end(),
                                    [&](const auto& k) { return k.name == name.str(); });
      if (key == keys.end()) {
        std::vector<std::string_view> known;
        for (const auto& k : keys) known.push_back(k.name);
        unknown(line_of(node), prefix, name.str(), known);
        continue;
      }
      const std::string path = prefix + "." + std::string(key->name);
      lines_.emplace_back(path, line_of(node));
      auto result = value(node, *key, out);
      if (!result.ok()) problem(line_of(node), path, result.error().message);
    }
    for (const auto& key : keys) {
      if (key.required && !table.contains(key.name)) {
        problem(line_of(table), prefix + "." + std::string(key.name), "is required");
      }
    }
  }

  void unknown(int64_t line, const std::string& prefix, std::string_view name,
               const std::vector<std::string_view>& known) {
    const std::string key = (prefix.empty() ? "" : prefix + ".") + std::string(name.substr(0, 80));
    const std::string_view near = nearest_word(name, known);
    const std::string home = near.empty() ? home_of(name) : std::string();
    std::string message = prefix.empty() ? "unknown table" : "unknown key";
    if (!near.empty()) message += ", did you mean \"" + std::string(near) + "\"?";
    if (!home.empty()) message += ": it belongs to [" + home + "]";
    problem(line, key, std::move(message));
  }

  // The line a key was read from; 0 when it was not in the file.
  [[nodiscard]] int64_t line(std::string_view key) const {
    for (const auto& [path, at] : lines_) {
      if (path == key) return at;
    }
    return 0;
  }

 private:
  static std::string home_of(std::string_view name) {
    const auto has = [&](const auto& keys) {
      return std::any_of(keys.begin(), keys.end(), [&](const auto& k) { return k.name == name; });
    };
    if (has(server_keys())) return "server";
    if (has(limits_keys())) return "limits";
    if (has(engines_keys())) return "engines";
    return has(model_keys()) ? "model.default" : "";
  }

  static Error wrong_type(const toml::node& node, std::string_view wanted) {
    return make_error(Errc::invalid_argument, "must be " + std::string(wanted) + ", not " +
                                                  std::string(toml_type_name(node)));
  }

  template <typename Section>
  Result<void> value(const toml::node& node, const ConfigKey<Section>& key, Section& out) {
    return std::visit(
        Overloaded{
            [&](std::string Section::*field) { return text(node, key, out.*field); },
            [&](std::vector<std::string> Section::*field) { return list(node, key, out.*field); },
            [&](int64_t Section::*field) { return number(node, key, out.*field); },
            [&](bool Section::*field) -> Result<void> {
              const auto flag = node.value_exact<bool>();
              if (!flag.has_value()) return wrong_type(node, "true or false");
              out.*field = *flag;
              return {};
            },
            [&](Duration Section::*field) { return duration(node, key, out.*field); }},
        key.field);
  }

  template <typename Section>
  Result<void> text(const toml::node& node, const ConfigKey<Section>& key, std::string& out) {
    const auto value = node.value_exact<std::string>();
    if (!value.has_value()) return wrong_type(node, "a string");
    if (std::any_of(value->begin(), value->end(), [](char c) { return c >= 0 && c < ' '; })) {
      return make_error(Errc::invalid_argument, "must not hold control characters");
    }
    if (key.required && value->empty()) {
      return make_error(Errc::invalid_argument, "must not be empty");
    }
    if (key.kind == ValueKind::name) TRY(check_model_name(*value));
    if (key.kind == ValueKind::word && !is_word(key.words, *value)) {
      std::string words(key.words);
      std::replace(words.begin(), words.end(), '|', ' ');
      return make_error(Errc::invalid_argument,
                        json_quoted(*value) + " is none of: " + words);
    }
    out = key.kind == ValueKind::path ? absolute(base_dir_, *value) : *value;
    return {};
  }

  static bool is_word(std::string_view words, std::string_view word) {
    while (true) {
      const size_t bar = words.find('|');
      if (words.substr(0, bar) == word) return true;
      if (bar == std::string_view::npos) return false;
      words.remove_prefix(bar + 1);
    }
  }

  template <typename Section>
  static Result<void> list(const toml::node& node, const ConfigKey<Section>& key,
                           std::vector<std::string>& out) {
    const toml::array* array = node.as_array();
    if (array == nullptr) return wrong_type(node, "an array of strings");
    out.clear();
    for (const toml::node& element : *array) {
      const auto value = element.value_exact<std::string>();
      if (!value.has_value()) return wrong_type(element, "an array of strings");
      TRY(key.kind == ValueKind::hosts ? check_host_name(*value) : check_model_name(*value));
      out.push_back(*value);
    }
    return {};
  }

  template <typename Section>
  static Result<void> number(const toml::node& node, const ConfigKey<Section>& key, int64_t& out) {
    int64_t value = 0;
    const bool bytes = key.kind == ValueKind::bytes;
    if (bytes) {
      const auto text = node.value_exact<std::string>();
      if (!text.has_value()) return wrong_type(node, "a string with a unit, such as \"1GiB\"");
      TRY_ASSIGN(value, parse_bytes(*text));
    } else {
      const auto integer = node.value_exact<int64_t>();
      if (!integer.has_value()) return wrong_type(node, "an integer");
      value = *integer;
    }
    if (value < key.least || value > key.most) {
      const auto print = [&](int64_t v) { return bytes ? bytes_text(v) : std::to_string(v); };
      return make_error(Errc::invalid_argument, print(value) + " is not within " +
                                                    print(key.least) + " to " + print(key.most));
    }
    out = value;
    return {};
  }

  template <typename Section>
  static Result<void> duration(const toml::node& node, const ConfigKey<Section>& key,
                               Duration& out) {
    const auto text = node.value_exact<std::string>();
    if (!text.has_value()) return wrong_type(node, "a string with a unit, such as \"10s\"");
    TRY_ASSIGN(const Duration value, parse_duration(*text));
    if (value.count() < key.least || value.count() > key.most) {
      return make_error(Errc::invalid_argument,
                        duration_text(value) + " is not within " +
                            duration_text(Duration(key.least)) + " to " +
                            duration_text(Duration(key.most)));
    }
    out = value;
    return {};
  }

  const std::string base_dir_;
  std::vector<ConfigProblem>& problems_;
  std::vector<std::pair<std::string, int64_t>> lines_;
};

void read_models(const toml::node& node, Reader& reader, Config& config) {
  const toml::table* models = node.as_table();
  if (models == nullptr) {
    reader.problem(line_of(node), "model", "must be a table");
    return;
  }
  for (const auto& [name, model] : *models) {
    const bool is_default = name.str() == "default";
    if (!is_default && name.str() != "optional") {
      reader.unknown(line_of(model), "model", name.str(), {"default", "optional"});
      continue;
    }
    const std::string path = "model." + std::string(name.str());
    const toml::table* table = model.as_table();
    if (table == nullptr) {
      reader.problem(line_of(model), path, "must be a table");
      continue;
    }
    ModelConfig& target = is_default ? config.default_model : config.optional_model.emplace();
    reader.section(*table, path, model_keys(), target);
  }
}

void read_root(const toml::table& root, Reader& reader, Config& config) {
  for (const auto& [name, node] : root) {
    const std::string_view key = name.str();
    const toml::table* table = node.as_table();
    if (key == "model") {
      read_models(node, reader, config);
    } else if (key != "server" && key != "limits" && key != "engines") {
      reader.unknown(line_of(node), "", key, {"server", "limits", "engines", "model"});
    } else if (table == nullptr) {
      reader.problem(line_of(node), std::string(key), "must be a table");
    } else if (key == "server") {
      reader.section(*table, "server", server_keys(), config.server);
    } else if (key == "limits") {
      reader.section(*table, "limits", limits_keys(), config.limits);
    } else {
      reader.section(*table, "engines", engines_keys(), config.engines);
    }
  }
  const toml::node* model = root.get("model");
  if (model == nullptr || model->as_table() == nullptr || !model->as_table()->contains("default")) {
    reader.problem(0, "model.default", "is required: the model that everybody uses");
  }
}

void check_names(const Config& config, Reader& reader) {
  std::vector<std::pair<std::string, std::string>> taken;  // name, key
  const auto add = [&](const std::string& name, const std::string& key) {
    if (name.empty()) return;
    if (name == "default" || name == "optional") {
      reader.problem(reader.line(key), key, "\"" + name + "\" already means the role");
    }
    for (const auto& [other, other_key] : taken) {
      if (other == name) {
        reader.problem(reader.line(key), key, "\"" + name + "\" is used by " + other_key + " too");
      }
    }
    taken.emplace_back(name, key);
  };
  const auto add_model = [&](const ModelConfig& model, const std::string& prefix) {
    add(model.name, prefix + ".name");
    for (const std::string& alias : model.aliases) add(alias, prefix + ".aliases");
  };
  add_model(config.default_model, "model.default");
  if (config.optional_model.has_value()) add_model(*config.optional_model, "model.optional");
}

// What one key alone cannot say.
void check_relations(Config& config, const std::string& base_dir, Reader& reader) {
  const auto listen = parse_listen(config.server.listen);
  if (!listen.ok()) {
    reader.problem(reader.line("server.listen"), "server.listen", listen.error().message);
  } else if (!listen->loopback && !config.server.require_key) {
    reader.problem(reader.line("server.require_key"), "server.require_key",
                   "must be true when server.listen is not a loopback address");
  }
  config.server.state_dir = absolute(base_dir, config.server.state_dir);
  config.server.run_dir = absolute(base_dir, config.server.run_dir);
  config.server.admin_socket = absolute(config.server.run_dir, config.server.admin_socket);
  const auto check_path = [&](const std::string& path, const char* key) {
    if (path.size() <= kSocketPathBytesMax) return;
    reader.problem(reader.line(key), key,
                   "the socket path " + json_quoted(path) + " has " + std::to_string(path.size()) +
                       " bytes, at most " + std::to_string(kSocketPathBytesMax) +
                       " are possible: choose a shorter run_dir");
  };
  check_path(config.server.admin_socket, "server.admin_socket");
  check_path(config.server.run_dir + "/engine-optional.sock", "server.run_dir");
  check_names(config, reader);
}

// The line of the first character outside ASCII that stands in neither a string nor a comment, or 0.
// TOML 1.0 allows none there, and toml++ 3.3 has undefined behaviour for some of them.
int64_t line_of_stray_character(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  int64_t line = 1;
  std::string_view quote;  // of the string that is open; "#" stands for a comment
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const std::string_view rest = text.substr(i);
    if (c == '\n') {
      ++line;
      if (quote.size() == 1) quote = {};  // ends a comment, and breaks a string of one line
    } else if (quote.empty()) {
      if (static_cast<unsigned char>(c) >= 0x80) return line;
      for (const std::string_view opener : {"\"\"\"", "'''", "\"", "'", "#"}) {
        if (!rest.starts_with(opener)) continue;
        quote = opener;
        i += opener.size() - 1;
        break;
      }
    } else if (c == '\\' && quote.front() == '"' && !rest.substr(1).starts_with('\n')) {
      ++i;
    } else if (quote != "#" && rest.starts_with(quote)) {
      i += quote.size() - 1;
      quote = {};
    }
  }
  return 0;
}

}  // namespace

ParsedConfig parse_config(std::string_view text, const std::string& base_dir) {
  ParsedConfig parsed;
  Reader reader(base_dir, parsed.problems);
  if (text.size() > kConfigBytesMax) {
    reader.problem(0, "", "the file has more than " + bytes_text(kConfigBytesMax));
    return parsed;
  }
  if (const int64_t line = line_of_stray_character(text); line > 0) {
    reader.problem(line, "", "characters outside ASCII may stand in strings and comments only");
    return parsed;
  }
  const toml::parse_result result = toml::parse(text);
  if (!result) {
    reader.problem(static_cast<int64_t>(result.error().source().begin.line), "",
                   std::string(result.error().description()));
    return parsed;
  }
  read_root(result.table(), reader, parsed.config);
  check_relations(parsed.config, base_dir, reader);
  std::stable_sort(parsed.problems.begin(), parsed.problems.end(),
                   [](const auto& a, const auto& b) { return a.line < b.line; });
  return parsed;
}

std::string problems_text(const std::string& path, const std::vector<ConfigProblem>& problems) {
  std::string out;
  for (const ConfigProblem& problem : problems) {
    if (!out.empty()) out += '\n';
    out += path;
    if (problem.line > 0) out += ":" + std::to_string(problem.line);
    if (!problem.key.empty()) out += ": " + problem.key;
    out += ": " + problem.message;
  }
  return out;
}

Result<Config> load_config(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return make_error(Errc::io, "cannot read the configuration file " + path +
                                    ": does it exist, may this user read it?");
  }
  std::stringstream text;
  text << file.rdbuf();
  const size_t slash = path.rfind('/');
  std::string base_dir = slash == std::string::npos ? "." : path.substr(0, slash);
  if (slash == 0) base_dir = "/";
  if (base_dir.front() != '/') {
    std::error_code code;
    base_dir = std::filesystem::absolute(base_dir, code).lexically_normal().string();
  }
  ParsedConfig parsed = parse_config(std::move(text).str(), base_dir);
  if (!parsed.problems.empty()) {
    return make_error(Errc::invalid_argument, problems_text(path, parsed.problems));
  }
  return std::move(parsed.config);
}

}  // namespace tandem::service
