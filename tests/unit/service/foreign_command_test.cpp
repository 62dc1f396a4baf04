// From budgets in bytes to the command line of an engine of others.
#include "service/foreign_command.h"

#include <algorithm>
#include <string>
#include <vector>

#include "service/foreign_flags.h"
#include "tests/support/catch.h"

namespace tandem::service {
namespace {

constexpr int64_t kKiB = 1024;
constexpr int64_t kGiB = int64_t{1} << 30;

ModelConfig llama() {
  ModelConfig model;
  model.name = "small";
  model.engine = "llama-server";
  model.file = "/m/a.gguf";
  return model;
}

ModelConfig vllm() {
  ModelConfig model;
  model.name = "big";
  model.engine = "vllm";
  model.repository = "org/model";
  model.kv_bytes = 8 * kGiB;
  model.weights_bytes = 15 * kGiB;
  model.context_tokens = 32768;
  return model;
}

// Of a 16-bit cache of 96 KiB a token, a window of 10 MiB, a state of 4 MiB.
constexpr CacheFacts kCache{.bytes_per_token = 96 * kKiB,
                            .window_bytes_per_slot = 10 << 20,
                            .state_bytes_per_slot = 4 << 20,
                            .context_tokens = 262144};

EngineCommand command(const ModelConfig& model, std::optional<CacheFacts> cache = kCache) {
  auto out = engine_command({.model = model,
                             .port = 9001,
                             .cache = cache,
                             .host_total_bytes = 120 * kGiB,
                             .host_available_bytes = 100 * kGiB});
  INFO((out.ok() ? std::string() : out.error().message));
  REQUIRE(out.ok());
  return std::move(out).value();
}

std::string value(const EngineCommand& out, std::string_view flag) {
  return flag_value(out.command, {flag}).value_or("(none)");
}

TEST_CASE("llama-server: each slot its whole context where nothing else is said") {
  const EngineCommand out = command(llama(), std::nullopt);
  CHECK(out.command == std::vector<std::string>{
                           "llama-server", "--model", "/m/a.gguf", "--alias", "small", "--host", "127.0.0.1",
                           "--port", "9001", "--parallel", "4", "--ctx-size", "32768", "--batch-size", "512",
                           "--ubatch-size", "512", "--jinja", "--metrics", "--slots", "--no-webui"});
  CHECK(out.urls == std::vector<std::string>{"http://127.0.0.1:9001"});
  CHECK(out.environment.at("LLAMA_ARG_LOAD_MODE") == "dio");
  CHECK(out.environment.at("LLAMA_ARG_CACHE_RAM") == "0");
  CHECK(out.environment.at("LLAMA_ARG_FIT") == "off");
  CHECK(out.environment.at("LLAMA_ARG_CTX_CHECKPOINTS") == "4");
  CHECK(out.expected ==
        ConfigTable{{"context_tokens", "8192"}, {"kv_type", "f16"}, {"prefix_cache", "on"}, {"slots", "4"}});
}

TEST_CASE("llama-server: what the KV budget in bytes becomes") {
  struct Row {
    int64_t kv = 0;
    std::vector<std::string> arguments;
    std::string context;
    bool shared = false;
  };
  const int64_t windows = 4 * (int64_t{10} << 20);
  const int64_t all = 4 * 8192 * 96 * kKiB + windows;  // 3 GiB and the windows
  for (const Row& row : {Row{.kv = all, .arguments = {}, .context = "32768"},
                         Row{.kv = 20 * kGiB, .arguments = {}, .context = "32768"},
                         Row{.kv = all - 1, .arguments = {}, .context = "32512", .shared = true},
                         Row{.kv = windows + 8192 * 96 * kKiB, .arguments = {}, .context = "8192", .shared = true},
                         // 8.5 bits a value: the same bytes hold all of it.
                         Row{.kv = 2 * kGiB, .arguments = {"-ctk", "q8_0", "-ctv", "q8_0"}, .context = "32768"},
                         Row{.kv = 2 * kGiB, .arguments = {"-ctk", "q8_0"}, .context = "28416", .shared = true}}) {
    ModelConfig model = llama();
    model.kv_bytes = row.kv;
    model.arguments = row.arguments;
    INFO(row.kv << " " << row.arguments.size());
    const EngineCommand out = command(model);
    if (row.arguments.size() != 2) CHECK(value(out, "--ctx-size") == row.context);
    CHECK(has_flag(out.command, {"--kv-unified"}) == row.shared);
    // It never takes more than it was given.
    const int64_t tokens = flag_number(value(out, "--ctx-size")).value();
    CHECK((tokens * 96 * kKiB + windows) * cache_permille(model) / 1000 <= row.kv);
  }
}

TEST_CASE("llama-server: a KV budget that holds no whole context is refused with the numbers") {
  ModelConfig model = llama();
  model.kv_bytes = kGiB / 2;
  const auto out = engine_command({.model = model, .port = 1, .cache = kCache});
  REQUIRE_FALSE(out.ok());
  CHECK(out.error().code == Errc::invalid_argument);
  CHECK(out.error().message.find("kv of 536870912 bytes holds 4864 tokens of 98304 bytes") != std::string::npos);
  CHECK(out.error().message.find("one context has 8192") != std::string::npos);
  CHECK(engine_command({.model = model, .port = 1}).error().code == Errc::unavailable);
}

TEST_CASE("llama-server: states for reused prompts follow their budget") {
  ModelConfig model = llama();
  model.checkpoint_bytes = int64_t{14 << 20} * 4 * 3 + 1;
  CHECK(command(model).environment.at("LLAMA_ARG_CTX_CHECKPOINTS") == "3");
  model.prefix_cache = "off";
  CHECK(command(model).environment.at("LLAMA_ARG_CTX_CHECKPOINTS") == "0");
  CHECK(command(model).environment.at("LLAMA_ARG_NO_CACHE_PROMPT") == "1");
  CHECK(command(model).expected.at("prefix_cache") == "off");
  model.load = "mapped";
  CHECK(command(model).environment.at("LLAMA_ARG_LOAD_MODE") == "mmap");
  CHECK(command(model).environment.count("LLAMA_ARG_NO_MMAP") == 0);
}

TEST_CASE("vllm: bytes, seats and context; never a fraction of the box") {
  const EngineCommand out = command(vllm());
  CHECK(out.command ==
        std::vector<std::string>{"vllm", "serve", "org/model", "--served-model-name", "big", "--host", "127.0.0.1",
                                 "--port", "9001", "--kv-cache-memory-bytes", "8589934592",
                                 "--gpu-memory-utilization", "0.21", "--max-num-seqs", "4", "--max-model-len",
                                 "32768", "--max-num-batched-tokens", "512", "--enable-prefix-caching"});
  CHECK(out.environment.at("VLLM_CPU_KVCACHE_SPACE") == "8");
  CHECK(out.environment.at("VLLM_NO_USAGE_STATS") == "1");
  CHECK(out.environment.count("HF_HUB_OFFLINE") == 0);
  CHECK_FALSE(has_flag(out.command, {"--enforce-eager"}));
  CHECK(out.expected == ConfigTable{{"context_tokens", "32768"},
                                    {"kv_bytes", "8589934592"},
                                    {"kv_type", "auto"},
                                    {"prefix_cache", "on"},
                                    {"slots", "4"}});
}

TEST_CASE("vllm: the fraction that it insists on is what the budgets come to") {
  struct Row {
    int64_t available = 0;
    int64_t workspace = 0;
    const char* fraction = "";
  };
  // 15 + 8 + 3 of 120 GiB are 21.6 %; with less available, that less 3 GiB.
  for (const Row& row : {Row{100 * kGiB, 0, "0.21"}, Row{100 * kGiB, 13 * kGiB, "0.30"}, Row{21 * kGiB, 0, "0.15"},
                         Row{4 * kGiB, 0, "0.01"}, Row{1 * kGiB, 0, "0.01"}}) {
    ModelConfig model = vllm();
    model.workspace_bytes = row.workspace;
    const auto out = engine_command({.model = model,
                                     .port = 1,
                                     .host_total_bytes = 120 * kGiB,
                                     .host_available_bytes = row.available});
    REQUIRE(out.ok());
    CHECK(value(*out, "--gpu-memory-utilization") == row.fraction);
  }
}

TEST_CASE("vllm: what the arguments ask for is what it should say of itself") {
  ModelConfig model = vllm();
  model.repository = "/models/m";
  model.prefix_cache = "off";
  model.arguments = {"--kv-cache-dtype", "fp8", "--speculative-config", "{\"method\":\"mtp\"}", "--tool-call-parser",
                     "qwen3_coder", "--attention-backend=FLASHINFER"};
  const EngineCommand out = command(model);
  CHECK(has_flag(out.command, {"--no-enable-prefix-caching"}));
  CHECK(out.environment.at("HF_HUB_OFFLINE") == "1");
  CHECK(out.expected.at("kv_type") == "fp8");
  CHECK(out.expected.at("speculation") == "on");
  CHECK(out.expected.at("tool_parser") == "qwen3_coder");
  CHECK(out.expected.at("attention_backend") == "FLASHINFER");
  CHECK(out.expected.count("reasoning_parser") == 0);
  // Last, so that they win.
  CHECK(std::equal(model.arguments.rbegin(), model.arguments.rend(), out.command.rbegin()));
}

TEST_CASE("a command of one's own replaces the program only; variables of one's own win") {
  ModelConfig model = llama();
  model.command = {"docker", "run", "--rm", "image"};
  model.served_model = "inside";
  model.environment = {{"LLAMA_ARG_LOAD_MODE", "mlock"}, {"X", "y"}};
  const EngineCommand out = command(model);
  CHECK(std::vector<std::string>(out.command.begin(), out.command.begin() + 6) ==
        std::vector<std::string>{"docker", "run", "--rm", "image", "--model", "/m/a.gguf"});
  CHECK(value(out, "--alias") == "inside");
  CHECK(out.environment.at("LLAMA_ARG_LOAD_MODE") == "mlock");
  CHECK(out.environment.at("X") == "y");
}

TEST_CASE("remote: nothing is started") {
  ModelConfig model;
  model.name = "far";
  model.engine = "remote";
  model.urls = {"http://10.0.0.7:8000", "http://10.0.0.8:8000"};
  const auto out = engine_command({.model = model});
  REQUIRE(out.ok());
  CHECK(out->command.empty());
  CHECK(out->urls == model.urls);
  CHECK(out->expected.empty());
  CHECK(served_name(model).empty());
}

}  // namespace
}  // namespace tandem::service
