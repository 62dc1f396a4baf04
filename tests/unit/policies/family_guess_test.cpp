// The guess at a family, on the templates of the golden data (TANDEM_SOURCE_DIR names the tree) and on
// small ones that carry the marks of the others.
#include "policies/family_guess.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "base/json.h"
#include "policies/profile.h"
#include "tests/support/catch.h"

namespace policies = tandem::policies;

namespace {

std::string guess(std::string_view architecture, std::string_view name, std::string_view text) {
  return std::string(policies::guess_family(
      {.architecture = architecture, .name = name, .chat_template = text}));
}

std::string real_template(const char* name) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  std::ifstream stream(std::string(root == nullptr ? "." : root) +
                       "/tests/golden/data/template/real.json");
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  return tandem::parse_json(bytes).value().find("templates")->find(name)->as_string();
}

}  // namespace

TEST_CASE("the family of real files", "[family]") {
  CHECK(guess("qwen2", "Qwen2.5 Coder 0.5B Instruct AWQ", real_template("qwen2.5-coder-0.5b")) ==
        "qwen2.5");
  CHECK(guess("qwen35", "tandem tiny hybrid", real_template("tiny-hybrid")) == "qwen3.5");
  CHECK(guess("llama", "Smollm2 135M 8k Lc100K Mix1 Ep2", real_template("smollm2-135m")) == "plain");
  CHECK(guess("gemma3", "Gemma 3 270m", "").empty());  // no template: no chats
}

TEST_CASE("the family by the marks of a template", "[family]") {
  const std::string xml = "<|im_start|> <tool_call>\n<function=f>";
  CHECK(guess("qwen3moe", "Qwen3-Coder-30B", xml) == "qwen3-coder");
  CHECK(guess("qwen35", "Qwen3.5-9B", xml + "<think>") == "qwen3.5");
  CHECK(guess("qwen35", "Qwen3.6-27B", xml + "<think>") == "qwen3.6");
  CHECK(guess("qwen35", "my tune", xml + "<think> preserve_thinking") == "qwen3.6");
  CHECK(guess("qwen35", "x", xml + "<think> preserve_thinking reasoning_effort") == "qwen3.8");
  const std::string json_calls = "<|im_start|> <tool_call> {\"name\"";
  CHECK(guess("qwen3", "Qwen3-8B", json_calls + " enable_thinking") == "qwen3");
  CHECK(guess("llama", "Hermes-3-Llama-3.1-8B", json_calls) == "hermes");
  CHECK(guess("llama", "Meta Llama 3.1", "<|start_header_id|>system") == "llama3");
  CHECK(guess("llama", "Mistral Nemo", "[INST] [TOOL_CALLS]") == "mistral");
  CHECK(guess("gemma4", "Gemma 4 26B", "<|turn>model <|tool_call>") == "gemma4");
  CHECK(guess("gemma3", "Gemma 3 1B it", "<start_of_turn>model") == "gemma3");
  CHECK(guess("gpt-oss", "gpt-oss-20b", "<|start|>assistant<|channel|>") == "gpt-oss");
  CHECK(guess("rwkv7", "unheard of", "User: {{ message }}").empty());
  CHECK(guess("", "", "").empty());
}

TEST_CASE("every guess names a family of the table", "[family]") {
  for (const char* text : {"<|channel|>", "<|turn>", "<start_of_turn>", "[INST]", "[TOOL_CALLS]",
                           "<|start_header_id|>", "<function=", "<function=<think>", "<tool_call>",
                           "<function=<think>reasoning_effort", "<|im_start|>"}) {
    for (const char* architecture : {"qwen2", "llama"}) {
      CHECK(policies::family_profile(guess(architecture, "", text)).has_value());
    }
  }
}
