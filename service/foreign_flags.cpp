#include "service/foreign_flags.h"

#include <algorithm>
#include <charconv>

#include "service/config_units.h"

namespace tandem::service {
namespace {

using Names = std::vector<std::string_view>;

// What a flag must say, and the key that says so.
struct Fixed {
  Names flags;
  std::string key;
  int64_t number = 0;
  std::string text = "";  // of a value that is no number
};

// A flag that has no place beside Tandem.
struct Banned {
  Names flags;
  const char* why;
};

std::vector<Fixed> llama_fixed(const ModelConfig& model) {
  std::vector<Fixed> out = {{{"-m", "--model"}, "file", 0, model.file},
                            {{"-np", "--parallel"}, "slots", model.slots},
                            {{"-b", "--batch-size"}, "batch_tokens", model.batch_tokens},
                            {{"-ub", "--ubatch-size"}, "batch_tokens", model.batch_tokens},
                            {{"--port"}, "port", model.port}};
  if (model.threads > 0) out.push_back({{"-t", "--threads"}, "threads", model.threads});
  return out;
}

std::vector<Fixed> vllm_fixed(const ModelConfig& model) {
  return {{{"--model"}, "repository", 0, model.repository},
          {{"--kv-cache-memory-bytes", "--kv-cache-memory"}, "kv", model.kv_bytes},
          {{"--max-num-seqs"}, "slots", model.slots},
          {{"--max-model-len"}, "context_tokens", model.context_tokens},
          {{"--max-num-batched-tokens"}, "batch_tokens", model.batch_tokens},
          {{"--port"}, "port", model.port}};
}

std::vector<Banned> banned(const ModelConfig& model) {
  std::vector<Banned> out = {
      {{"--api-key", "--api-key-file"}, "a key on a command line is everybody's to read: use key_file"},
      {{"--ssl-keyfile", "--ssl-key-file", "--ssl-certfile", "--ssl-cert-file"},
       "Tandem speaks to the engine over loopback without TLS"}};
  if (model.engine == "vllm") {
    out.push_back({{"--gpu-memory-utilization"}, "budgets are bytes: it follows from kv, weights and workspace"});
  } else {
    out.push_back({{"-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified"}, "it follows from kv"});
    out.push_back({{"-fit", "--fit"}, "it would change slots and context unasked: budgets are bytes"});
  }
  return out;
}

std::string shown(const Names& flags, const std::optional<std::string>& value) {
  return std::string(flags.back()) + (value.has_value() && !value->empty() ? " " + *value : "");
}

void check_fixed(const ModelConfig& model, const Fixed& fixed, std::vector<std::string>& out) {
  const auto value = flag_value(model.arguments, fixed.flags);
  if (!value.has_value()) return;
  const std::string wanted = fixed.text.empty() ? std::to_string(fixed.number) : fixed.text;
  const bool same = fixed.text.empty() ? flag_number(*value) == fixed.number : *value == fixed.text;
  if (same) return;
  out.push_back(shown(fixed.flags, value) + " contradicts " + fixed.key + " = " + wanted +
                ": say it once, with " + fixed.key);
}

// llama-server's context is that of all slots together.
void check_llama_context(const ModelConfig& model, std::vector<std::string>& out) {
  const Names flags{"-c", "--ctx-size"};
  const auto value = flag_value(model.arguments, flags);
  if (!value.has_value() || flag_number(*value) == model.slots * model.context_tokens) return;
  out.push_back(shown(flags, value) + " contradicts slots = " + std::to_string(model.slots) +
                " times context_tokens = " + std::to_string(model.context_tokens) + ", which is " +
                std::to_string(model.slots * model.context_tokens) + ": say it once, with those");
}

}  // namespace

std::optional<std::string> flag_value(const std::vector<std::string>& arguments, const Names& names) {
  std::optional<std::string> out;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    for (const std::string_view name : names) {
      if (argument == name) {
        const bool next = i + 1 < arguments.size();
        // A negative number is a value; "-np" is the next flag.
        const bool flag = next && arguments[i + 1].starts_with("-") && !flag_number(arguments[i + 1]).has_value();
        out = next && !flag ? arguments[i + 1] : std::string();
      } else if (argument.size() > name.size() && argument.starts_with(name) && argument[name.size()] == '=') {
        out = argument.substr(name.size() + 1);
      }
    }
  }
  return out;
}

bool has_flag(const std::vector<std::string>& arguments, const Names& names) {
  return flag_value(arguments, names).has_value();
}

std::optional<int64_t> flag_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc()) return std::nullopt;
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  int64_t factor = unit.empty() ? 1 : 0;
  constexpr std::string_view kThousands = "kmgt";
  constexpr std::string_view kBinary = "KMGT";
  for (size_t i = 0; i < kBinary.size() && unit.size() == 1; ++i) {
    int64_t thousands = 1;
    for (size_t power = 0; power <= i; ++power) thousands *= 1000;
    if (unit[0] == kThousands[i]) factor = thousands;
    if (unit[0] == kBinary[i]) factor = int64_t{1} << (10 * (i + 1));
  }
  int64_t product = 0;
  if (factor == 0 || __builtin_mul_overflow(number, factor, &product)) return std::nullopt;
  return product;
}

std::vector<std::string> argument_conflicts(const ModelConfig& model) {
  std::vector<std::string> out;
  const bool llama = model.engine == "llama-server";
  if (!llama && model.engine != "vllm") return out;
  for (const Fixed& fixed : llama ? llama_fixed(model) : vllm_fixed(model)) check_fixed(model, fixed, out);
  if (llama) check_llama_context(model, out);
  for (const Banned& each : banned(model)) {
    if (!has_flag(model.arguments, each.flags)) continue;
    std::string flag;
    for (const std::string_view name : each.flags) {
      if (flag.empty() && has_flag(model.arguments, {name})) flag = name;
    }
    out.push_back(flag + " cannot be an argument: " + each.why);
  }
  const Names host{"--host"};
  const auto address = flag_value(model.arguments, host);
  if (address.has_value() && *address != "127.0.0.1") {
    out.push_back("--host " + *address + " would open the engine beside Tandem, which reaches it on 127.0.0.1");
  }
  return out;
}

}  // namespace tandem::service
