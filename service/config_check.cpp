#include "service/config_check.h"

#include <charconv>
#include <utility>
#include <vector>

#include "service/config_units.h"

namespace tandem::service {
namespace {

constexpr size_t kSocketPathBytesMax = 107;  // sun_path without its terminator

void check_names(const Config& config, const AddProblem& problem) {
  std::vector<std::pair<std::string, std::string>> taken;  // name, key
  const auto add = [&](const std::string& name, const std::string& key) {
    if (name.empty()) return;
    if (name == "default" || name == "optional") {
      problem(key, "\"" + name + "\" already means the role");
    }
    for (const auto& [other, other_key] : taken) {
      if (other == name) {
        problem(key, "\"" + name + "\" is used by " + other_key + " too");
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

}  // namespace

Result<std::map<std::string, double, std::less<>>> parse_key_weights(const std::vector<std::string>& entries) {
  std::map<std::string, double, std::less<>> weights;
  for (const std::string& entry : entries) {
    const size_t colon = entry.rfind(':');
    int64_t weight = 0;
    if (colon != std::string::npos) {
      const char* end = entry.data() + entry.size();
      const auto [stopped, code] = std::from_chars(entry.data() + colon + 1, end, weight);
      if (code != std::errc() || stopped != end) weight = 0;
    }
    if (weight < 1 || weight > 100 || colon == 0) {
      return make_error(Errc::invalid_argument,
                        quoted_text(entry) + " must be a key's public id, a colon and 1 to 100");
    }
    if (!weights.emplace(entry.substr(0, colon), static_cast<double>(weight)).second) {
      return make_error(Errc::invalid_argument, quoted_text(entry) + " names its key a second time");
    }
  }
  return weights;
}

void check_relations(Config& config, const std::string& base_dir, const AddProblem& problem) {
  const auto listen = parse_listen(config.server.listen);
  if (!listen.ok()) {
    problem("server.listen", listen.error().message);
  } else if (!listen->loopback && !config.server.require_key) {
    problem("server.require_key", "must be true when server.listen is not a loopback address");
  }
  config.server.state_dir = absolute_path(base_dir, config.server.state_dir);
  config.server.run_dir = absolute_path(base_dir, config.server.run_dir);
  config.server.admin_socket = absolute_path(config.server.run_dir, config.server.admin_socket);
  const auto check_path = [&](const std::string& path, const char* key) {
    if (path.size() <= kSocketPathBytesMax) return;
    problem(key, "the socket path " + quoted_text(path) + " has " + std::to_string(path.size()) +
                     " bytes, at most " + std::to_string(kSocketPathBytesMax) +
                     " are possible: choose a shorter run_dir");
  };
  check_path(config.server.admin_socket, "server.admin_socket");
  check_path(config.server.run_dir + "/engine-optional.sock", "server.run_dir");
  if (const auto weights = parse_key_weights(config.queue.key_weights); !weights.ok()) {
    problem("queue.key_weights", weights.error().message);
  }
  check_names(config, problem);
  const auto check_model = [&](const ModelConfig& model, const std::string& prefix) {
    check_engine(model, prefix, problem);
    if (model.start_deadline <= config.engines.load_deadline) return;
    problem(prefix + ".start_deadline", "is longer than engines.load_deadline, which ends every start");
  };
  check_model(config.default_model, "model.default");
  if (config.optional_model.has_value()) check_model(*config.optional_model, "model.optional");
}

}  // namespace tandem::service
