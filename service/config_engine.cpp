#include <algorithm>
#include <array>
#include <string_view>

#include "base/overloaded.h"
#include "service/config_check.h"
#include "service/config_keys.h"
#include "service/config_units.h"
#include "service/foreign_flags.h"

namespace tandem::service {
namespace {

// Which engines a key means something to.
struct Use {
  std::string_view key;
  std::string_view engines;
  std::string_view instead;  // what to do with the others; empty: nothing helps
};

constexpr std::string_view kStarted = "llama-server vllm";
constexpr std::string_view kForeign = "llama-server vllm remote";
constexpr auto kUses = std::to_array<Use>({
    {"file", "tandem llama-server", "vllm loads repository, remote has its model already"},
    {"command", kStarted, ""},
    {"arguments", kStarted, ""},
    {"environment", kStarted, ""},
    {"stop_command", kStarted, ""},
    {"working_directory", kStarted, ""},
    {"repository", "vllm", "tandem and llama-server load file"},
    {"served_model", kForeign, ""},
    {"port", kStarted, "remote has its port in urls"},
    {"urls", "remote", "one that Tandem starts is on port; one that runs already is engine \"remote\""},
    {"key_file", kForeign, ""},
    {"allow_keys", "remote", ""},
    {"allow_classes", "remote", ""},
    {"prompts", kForeign, ""},
    {"dialect", kForeign, ""},
    {"weights", "vllm", "the others' weights are computed from file"},
    {"load_peak", kStarted, ""},
    {"workspace", kStarted, ""},
    {"start_deadline", kForeign, ""},
    {"kv", "tandem llama-server vllm", "its memory is another machine's"},
    {"checkpoints", "tandem llama-server", ""},
    {"memory_limit", "tandem", ""},
    {"threads", "tandem llama-server", "name them in arguments"},
});

bool has_word(std::string_view words, std::string_view word) {
  for (size_t at = 0; (at = words.find(word, at)) != std::string_view::npos; ++at) {
    const bool begins = at == 0 || words[at - 1] == ' ';
    const bool ends = at + word.size() == words.size() || words[at + word.size()] == ' ';
    if (begins && ends) return true;
  }
  return false;
}

// Whether the key says anything else than nothing at all would.
bool is_set(const ModelConfig& model, std::string_view name) {
  const ModelConfig nothing;
  for (const ConfigKey<ModelConfig>& key : model_keys()) {
    if (key.name != name) continue;
    return std::visit(Overloaded{[&](std::optional<policies::SamplingRow> ModelConfig::*field) {
                                   return (model.*field).has_value();
                                 },
                                 [&](auto field) { return model.*field != nothing.*field; }},
                      key.field);
  }
  return false;
}

std::string quoted_list(std::string_view words) {
  std::string out;
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    out += (out.empty() ? "\"" : ", \"") + std::string(words.substr(0, end)) + "\"";
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return out;
}

void check_uses(const ModelConfig& model, const std::string& prefix, const AddProblem& problem) {
  for (const Use& use : kUses) {
    if (has_word(use.engines, model.engine) || !is_set(model, use.key)) continue;
    problem(prefix + "." + std::string(use.key),
            "means something to engine " + quoted_list(use.engines) + ", not to \"" + model.engine + "\"" +
                (use.instead.empty() ? "" : ": " + std::string(use.instead)));
  }
}

void check_remote(const ModelConfig& model, const std::string& prefix, const AddProblem& problem) {
  if (model.urls.empty()) {
    return problem(prefix + ".urls", "is required: where the servers of engine \"remote\" are");
  }
  if (model.prompts == "raw") {
    problem(prefix + ".prompts", "cannot be \"raw\" with engine \"remote\": its template and tokens are not known");
  }
  for (const std::string& text : model.urls) {
    const auto url = parse_base_url(text);
    if (!url.ok() || url->loopback || !model.allow_keys.empty() || !model.allow_classes.empty()) continue;
    return problem(prefix + ".allow_keys",
                   "is required, or allow_classes: requests leave this machine for " + quoted_text(text) +
                       ", and nobody has said whose may (\"*\": everybody's)");
  }
}

void check_vllm(const ModelConfig& model, const std::string& prefix, const AddProblem& problem) {
  if (model.repository.empty()) {
    problem(prefix + ".repository", "is required: what engine \"vllm\" loads");
  }
  if (model.kv_bytes == 0) {
    problem(prefix + ".kv", "is required: without it vLLM takes a fraction of the whole box's memory");
  }
  if (model.weights_bytes == 0 && !model.repository.empty() && model.repository.front() != '/') {
    problem(prefix + ".weights", "is required: the memory of " + quoted_text(model.repository) +
                                     " cannot be looked up before it is loaded; or name its directory as repository");
  }
}

}  // namespace

void check_engine(const ModelConfig& model, const std::string& prefix, const AddProblem& problem) {
  check_uses(model, prefix, problem);
  if (has_word("tandem llama-server", model.engine) && model.file.empty()) {
    problem(prefix + ".file", "is required");
  }
  if (model.is_remote()) check_remote(model, prefix, problem);
  if (model.engine == "vllm") check_vllm(model, prefix, problem);
  if (!model.command.empty() && model.command.front().empty()) {
    problem(prefix + ".command", "must begin with a program");
  }
  if (!model.stop_command.empty() && model.stop_command.front().empty()) {
    problem(prefix + ".stop_command", "must begin with a program");
  }
  for (std::string& conflict : argument_conflicts(model)) {
    problem(prefix + ".arguments", std::move(conflict));
  }
}

}  // namespace tandem::service
