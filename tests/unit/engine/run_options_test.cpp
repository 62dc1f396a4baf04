#include "engine/run/options.h"

#include <vector>

#include "tests/support/catch.h"

namespace tandem::engine {
namespace {

Result<EngineOptions> parse(const std::vector<const char*>& arguments) {
  return parse_engine_options(arguments);
}

TEST_CASE("options: flags, suffixes and defaults") {
  const auto o = parse({"--model", "m.gguf", "--name=x", "--socket", "/run/s", "--kv", "64M",
                        "--context=8K", "--slots", "7", "--config-hash", "h"});
  REQUIRE(o.ok());
  CHECK(o->model == "m.gguf");
  CHECK(o->kv_bytes == int64_t{64} << 20);
  CHECK(o->context_tokens == 8192);
  CHECK(o->slots == 7);
  CHECK(o->batch_tokens == 512);
  CHECK(o->listen_fd == -1);
  CHECK(o->load == "auto");
  CHECK(o->commit == 1);
  const auto p = parse({"--model", "m", "--name", "n", "--socket", "s", "--load", "mapped", "--commit", "0"});
  REQUIRE(p.ok());
  CHECK(p->load == "mapped");
  CHECK(p->commit == 0);
}

TEST_CASE("options: wrong usage names the flag") {
  const std::vector<std::pair<std::vector<const char*>, const char*>> cases = {
      {{}, "--model"},
      {{"--model", "m"}, "--name"},
      {{"--model", "m", "--name", "n"}, "--socket"},
      {{"--model", "m", "--name", "n", "--socket", "s", "--listen-fd", "3"}, "--listen-fd"},
      {{"--model", "m", "--name", "n", "--socket", "s", "--slots", "0"}, "--slots"},
      {{"--model", "m", "--name", "n", "--socket", "s", "--kv", "12x"}, "--kv"},
      {{"--model", "m", "--name", "n", "--socket", "s", "--kv", "-1"}, "--kv"},
      {{"--model", "m", "--name", "n", "--socket", "s", "--kv", "99999999999G"}, "--kv"},
      {{"--model", "m", "--name", "n", "--socket", "s", "--log-level", "loud"}, "--log-level"},
      {{"--model", "m", "--name", "n", "--socket", "s", "--load", "fast"}, "--load"},
      {{"--model", "m", "--name", "n", "--socket", "s", "--commit", "2"}, "--commit"},
      {{"--model"}, "--model"},
      {{"--frobnicate", "1"}, "--frobnicate"},
  };
  for (const auto& [arguments, word] : cases) {
    const auto o = parse(arguments);
    REQUIRE_FALSE(o.ok());
    CHECK(o.error().message.find(word) != std::string::npos);
  }
  CHECK(parse({"--help"})->help);
  CHECK(parse({"--version"})->version);
}

TEST_CASE("options: every flag stands in the help text") {
  for (const char* flag : {"--model", "--name", "--socket", "--listen-fd", "--config-hash",
                           "--context", "--slots", "--kv", "--threads", "--batch-tokens",
                           "--queue", "--load", "--commit", "--memory-limit", "--quantum-us", "--lease", "--role", "--drain-timeout",
                           "--log-level", "--version", "--help"}) {
    CHECK(engine_help_text().find(flag) != std::string_view::npos);
  }
}

}  // namespace
}  // namespace tandem::engine
