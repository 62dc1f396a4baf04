// Engines of others in the configuration: what is read, and what cannot work together.
#include <string>
#include <vector>

#include "service/config.h"
#include "service/config_check.h"
#include "service/foreign_flags.h"
#include "tests/support/catch.h"

namespace tandem::service {
namespace {

std::vector<std::string> problems(const std::string& model) {
  std::vector<std::string> out;
  for (const ConfigProblem& p : parse_config("[model.default]\nname = \"a\"\n" + model, "/c").problems) {
    out.push_back(std::to_string(p.line) + " " + p.key + ": " + p.message);
  }
  return out;
}

std::string problem(const std::string& model) {
  const auto found = problems(model);
  INFO(model);
  for (const std::string& each : found) UNSCOPED_INFO(each);
  REQUIRE(found.size() == 1);
  return found[0];
}

constexpr const char* kLlama = "engine = \"llama-server\"\nfile = \"m.gguf\"\n";
constexpr const char* kVllm = "engine = \"vllm\"\nrepository = \"org/model\"\nkv = \"8GiB\"\nweights = \"15GiB\"\n";
constexpr const char* kRemote = "engine = \"remote\"\nurls = [\"http://10.0.0.7:8000/base/\"]\nallow_keys = [\"*\"]\n";

TEST_CASE("each kind of engine has a smallest configuration that works") {
  for (const std::string& text : {std::string(kLlama), std::string(kVllm), std::string(kRemote),
                                 std::string("engine = \"vllm\"\nrepository = \"/models/x\"\nkv = \"1GiB\"\n"),
                                 std::string("engine = \"remote\"\nurls = [\"http://127.0.0.1:8001\"]\n")}) {
    INFO(text);
    CHECK(problems(text) == std::vector<std::string>{});
  }
}

TEST_CASE("all keys of an engine are read, and what they say is printed back") {
  const ParsedConfig parsed = parse_config(R"(
[model.default]
name = "a"
engine = "vllm"
repository = "/models/qwen"
command = ["docker", "run", "--rm", "image"]
arguments = ["--quantization", "fp8", ""]
environment = { HF_HOME = "/models/hf", HF_TOKEN = "hf_secret" }
stop_command = ["docker", "stop", "x"]
working_directory = "w"
served_model = "Qwen/X"
port = 8001
key_file = "credential:vllm"
prompts = "chat"
kv = "8GiB"
weights = "15GiB"
load_peak = "31GiB"
workspace = "4GiB"
start_deadline = "20m"
health_every = "1m"
[model.default.dialect]
reasoning_field = "reasoning"
thinking_switch = true
limit = 3
)",
                                           "/c");
  INFO(problems_text("f", parsed.problems));
  REQUIRE(parsed.problems.empty());
  const ModelConfig& model = parsed.config.default_model;
  CHECK(model.command == std::vector<std::string>{"docker", "run", "--rm", "image"});
  CHECK(model.arguments == std::vector<std::string>{"--quantization", "fp8", ""});
  CHECK(model.environment.at("HF_TOKEN") == "hf_secret");
  CHECK(model.working_directory == "/c/w");
  CHECK(model.dialect == ConfigTable{{"limit", "3"}, {"reasoning_field", "reasoning"}, {"thinking_switch", "true"}});
  CHECK(model.start_deadline == std::chrono::minutes(20));
  const std::string shown = config_to_toml(parsed.config);
  CHECK(shown.find("HF_HOME\" = \"/models/hf\"") != std::string::npos);
  CHECK(shown.find("hf_secret") == std::string::npos);
  CHECK(config_to_json(parsed.config).dump().find("hf_secret") == std::string::npos);
  const ParsedConfig again = parse_config(shown, "/c");
  REQUIRE(again.problems.empty());
  CHECK(config_to_toml(again.config) == shown);
}

TEST_CASE("a combination that cannot work names the key and what to do instead") {
  CHECK(problem("file = \"a.gguf\"\nurls = [\"http://x:1\"]\n") ==
        "4 model.default.urls: means something to engine \"remote\", not to \"tandem\": one that Tandem starts is "
        "on port; one that runs already is engine \"remote\"");
  CHECK(problem("engine = \"llama-server\"\n") == "1 model.default.file: is required");
  CHECK(problem("engine = \"vllm\"\nkv = \"1GiB\"\n") == "1 model.default.repository: is required: what engine \"vllm\" loads");
  CHECK(problem("engine = \"vllm\"\nrepository = \"/m\"\n") ==
        "1 model.default.kv: is required: without it vLLM takes a fraction of the whole box's memory");
  CHECK(problem("engine = \"vllm\"\nrepository = \"org/m\"\nkv = \"1GiB\"\n").starts_with(
      "1 model.default.weights: is required: the memory of \"org/m\" cannot be looked up"));
  CHECK(problem(std::string(kVllm) + "file = \"a.gguf\"\n").starts_with(
      "7 model.default.file: means something to engine \"tandem\", \"llama-server\", not to \"vllm\": vllm loads"));
  CHECK(problem("engine = \"remote\"\nallow_keys = [\"*\"]\n").starts_with("1 model.default.urls: is required"));
  CHECK(problem(std::string(kRemote) + "file = \"a.gguf\"\n").find("not to \"remote\"") != std::string::npos);
  CHECK(problem(std::string(kRemote) + "kv = \"1GiB\"\n").find("its memory is another machine's") != std::string::npos);
  CHECK(problem("engine = \"exllama\"\nfile = \"f\"\n") ==
        "3 model.default.engine: \"exllama\" is none of: tandem llama-server vllm remote");
  CHECK(problem(std::string(kLlama) + "command = [\"\"]\n") == "5 model.default.command: must begin with a program");
  CHECK(problem(std::string(kLlama) + "environment = { \"A B\" = \"x\" }\n") ==
        "5 model.default.environment: \"A B\" is no name: letters, digits and _");
}

TEST_CASE("nothing leaves the machine unless somebody has said whose requests may") {
  CHECK(problem("engine = \"remote\"\nurls = [\"http://10.0.0.7:8000\"]\n") ==
        "1 model.default.allow_keys: is required, or allow_classes: requests leave this machine for "
        "\"http://10.0.0.7:8000\", and nobody has said whose may (\"*\": everybody's)");
  CHECK(problems("engine = \"remote\"\nurls = [\"http://10.0.0.7:8000\"]\nallow_classes = [\"batch\"]\n").empty());
  CHECK(problem("engine = \"remote\"\nurls = [\"http://127.0.0.1:1\", \"http://b:2\"]\n").find("\"http://b:2\"") !=
        std::string::npos);
  CHECK(problem("engine = \"remote\"\nurls = [\"http://10.0.0.7:8000\"]\nallow_classes = [\"night\"]\n").find(
            "\"night\" is none of: interactive batch") != std::string::npos);
}

TEST_CASE("addresses are plain http with a host") {
  const auto url = [](const std::string& text) {
    return problems("engine = \"remote\"\nallow_keys = [\"*\"]\nurls = [\"" + text + "\"]\n");
  };
  for (const char* good : {"http://a", "http://a:80/v1", "http://[::1]:9000", "http://10.0.0.7:8000/"}) {
    INFO(good);
    CHECK(url(good).empty());
  }
  for (const char* bad : {"a:80", "ftp://a", "http://", "http://a:0", "http://a:99999", "http://a b", "http://a/?q",
                          "http://u:p@a", "https://a"}) {
    INFO(bad);
    CHECK(url(bad).size() == 1);
  }
  CHECK(url("https://a")[0].find("leaves to a proxy on this machine") != std::string::npos);
}

TEST_CASE("an argument that contradicts a budget is a problem that names both") {
  const auto conflict = [](const std::string& start, const std::string& arguments) {
    return problem(start + "arguments = " + arguments + "\n");
  };
  CHECK(conflict(kLlama, R"(["--parallel", "8"])") ==
        "5 model.default.arguments: --parallel 8 contradicts slots = 4: say it once, with slots");
  CHECK(conflict(kLlama, R"(["-c", "9000"])") ==
        "5 model.default.arguments: --ctx-size 9000 contradicts slots = 4 times context_tokens = 8192, which is "
        "32768: say it once, with those");
  CHECK(conflict(kVllm, R"(["--max-model-len=16K"])").find("--max-model-len 16K contradicts context_tokens = 8192") !=
        std::string::npos);
  CHECK(conflict(kVllm, R"(["--kv-cache-memory-bytes", "4G"])").find("contradicts kv = 8589934592") != std::string::npos);
  CHECK(conflict(kVllm, R"(["--gpu-memory-utilization", "0.5"])").find("budgets are bytes") != std::string::npos);
  CHECK(conflict(kVllm, R"(["--api-key", "x"])").find("use key_file") != std::string::npos);
  CHECK(conflict(kLlama, R"(["--host", "0.0.0.0"])").find("would open the engine") != std::string::npos);
  CHECK(conflict(kLlama, R"(["-np"])").find("contradicts slots") != std::string::npos);
  // The same said twice is none, and neither is what no key speaks of.
  for (const char* fine : {R"(["--parallel", "4", "-c", "32768"])", R"(["--host", "127.0.0.1"])", R"(["-ngl", "99"])",
                           R"(["--threads", "8"])"}) {
    INFO(fine);
    CHECK(problems(std::string(kLlama) + "arguments = " + fine + "\n").empty());
  }
  CHECK(problems(std::string(kVllm) + R"(arguments = ["--max-model-len", "8K", "--kv-cache-memory-bytes=8G"])" + "\n").empty());
  CHECK(problem(std::string(kLlama) + "threads = 4\narguments = [\"-t\", \"8\"]\n").find("--threads 8") != std::string::npos);
}

TEST_CASE("values of flags as command lines give them") {
  const std::vector<std::string> line{"-c", "1", "--ctx-size=2", "-np", "-fa", "--neg", "-1"};
  CHECK(flag_value(line, {"-c", "--ctx-size"}).value() == "2");
  CHECK(flag_value(line, {"-np"}).value().empty());
  CHECK(flag_value(line, {"--neg"}).value() == "-1");
  CHECK_FALSE(flag_value(line, {"--ctx"}).has_value());
  CHECK(flag_number("8k").value() == 8000);
  CHECK(flag_number("8K").value() == 8192);
  CHECK(flag_number("2G").value() == int64_t{2} << 30);
  for (const char* bad : {"", "x", "1x", "1.5G", "9999999999999T"}) CHECK_FALSE(flag_number(bad).has_value());
}

}  // namespace
}  // namespace tandem::service
