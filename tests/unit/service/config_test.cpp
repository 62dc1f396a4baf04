#include "service/config.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace tandem::service {
namespace {

constexpr const char* kSmallest = "[model.default]\nname = \"a\"\nfile = \"a.gguf\"\n";

std::vector<std::string> problems(const std::string& text) {
  std::vector<std::string> out;
  for (const ConfigProblem& p : parse_config(text, "/c").problems) {
    out.push_back(std::to_string(p.line) + " " + p.key + ": " + p.message);
  }
  return out;
}

// The one problem that `extra` adds to a good file.
std::string problem(const std::string& extra) {
  const auto found = problems(std::string(kSmallest) + extra);
  REQUIRE(found.size() == 1);
  return found[0];
}

TEST_CASE("the smallest file gives the defaults and absolute paths") {
  const ParsedConfig parsed = parse_config(kSmallest, "/c");
  REQUIRE(problems_text("f", parsed.problems).empty());
  const Config& config = parsed.config;
  CHECK(config.server.listen == "127.0.0.1:8080");
  CHECK(config.server.require_key);
  CHECK(config.server.state_dir == "/c/state");
  CHECK(config.server.admin_socket == "/c/run/admin.sock");
  CHECK(config.default_model.file == "/c/a.gguf");
  CHECK(config.default_model.slots == 4);
  CHECK_FALSE(config.optional_model.has_value());
}

TEST_CASE("every value form is read") {
  const ParsedConfig parsed = parse_config(R"(
[server]
listen = "[::1]:9000"
hosts = ["box.example", "box"]
admin_socket = "/tmp/a.sock"
log_level = "debug"
[limits]
body_bytes = "1MiB"
header_deadline = "1500ms"
request_deadline = "2h"
[engines]
outlive = true
restart_window = "5m"
[model.default]
name = "a"
file = "/m/a.gguf"
aliases = ["fast", "org/a:1"]
kv = "3GiB"
[model.optional]
name = "b"
file = "b.gguf"
slots = 2
)",
                                           "/c");
  REQUIRE(problems_text("f", parsed.problems).empty());
  const Config& config = parsed.config;
  CHECK(config.server.hosts == std::vector<std::string>{"box.example", "box"});
  CHECK(config.server.admin_socket == "/tmp/a.sock");
  CHECK(config.limits.body_bytes == 1 << 20);
  CHECK(config.limits.header_deadline == Duration(1500));
  CHECK(config.limits.request_deadline == std::chrono::hours(2));
  CHECK(config.engines.outlive);
  CHECK(config.engines.restart_window == std::chrono::minutes(5));
  CHECK(config.default_model.aliases == std::vector<std::string>{"fast", "org/a:1"});
  CHECK(config.default_model.kv_bytes == int64_t{3} << 30);
  CHECK(config.optional_model.value().slots == 2);
}

TEST_CASE("all problems come together, by line") {
  const auto found = problems(
      "[server]\nlistn = \"x\"\nlog_level = \"loud\"\n[limits]\nbody_bytes = \"32MB\"\n"
      "streams = 0\n[model.default]\nname = \"a b\"\nslots = \"4\"\n");
  const std::vector<std::string> wanted{
      "2 server.listn: unknown key, did you mean \"listen\"?",
      "3 server.log_level: \"loud\" is none of: debug info warning error",
      "5 limits.body_bytes: \"32MB\" is no size: write a whole number and one of B, KiB, MiB, GiB, "
      "TiB, such as \"1GiB\"",
      "6 limits.streams: 0 is not within 1 to 4096",
      "7 model.default.file: is required",
      "8 model.default.name: \"a b\" is no model name: 1 to 64 letters, digits and . _ : / + -",
      "9 model.default.slots: must be an integer, not a string"};
  CHECK(found == wanted);
}

TEST_CASE("the sanitizer and the facts of a template") {
  const ParsedConfig parsed = parse_config(R"(
[sanitizer]
off = ["R20", "R28"]
default_max_tokens = 100
[model.default]
name = "a"
file = "a.gguf"
family = "gemma4"
system_messages = "leading"
sanitizer_off = ["R1"]
)",
                                           "/c");
  REQUIRE(problems_text("f", parsed.problems).empty());
  CHECK(parsed.config.sanitizer.off == std::vector<std::string>{"R20", "R28"});
  CHECK(parsed.config.sanitizer.default_max_tokens == 100);
  CHECK(parsed.config.default_model.family == "gemma4");
  CHECK(parsed.config.default_model.sanitizer_off == std::vector<std::string>{"R1"});
  const auto again = parse_config(config_to_toml(parsed.config), "/c");
  CHECK(config_to_json(again.config) == config_to_json(parsed.config));
  const auto found = problems(
      "[sanitizer]\noff = [\"R33\"]\n[model.default]\nname = \"a\"\nfile = \"f\"\n"
      "thinking = \"sometimes\"\ntool_syntax = \"xml\"\n");
  REQUIRE(found.size() == 3);
  CHECK(found[0] == "2 sanitizer.off: \"R33\" is no rule: they are called R1 to R32");
  CHECK(found[1] ==
        "6 model.default.thinking: \"sometimes\" is none of: auto none enable_thinking effort_only");
  CHECK(found[2].starts_with("7 model.default.tool_syntax: \"xml\" is none of: auto plain"));
}

TEST_CASE("rows of sampling values are tables, whole and checked") {
  const ParsedConfig parsed = parse_config(
      std::string(kSmallest) +
          "sampling_thinking = { temperature = 1, top_p = 0.95, top_k = 20 }\n"
          "[model.default.sampling_direct]\nrepetition_penalty = 1.05\npresence_penalty = -0.5\n",
      "/c");
  REQUIRE(problems_text("f", parsed.problems).empty());
  const ModelConfig& model = parsed.config.default_model;
  REQUIRE(model.sampling_thinking.has_value());
  CHECK(model.sampling_thinking->temperature == 1.0);
  CHECK(model.sampling_thinking->top_k == 20);
  CHECK_FALSE(model.sampling_thinking->min_p.has_value());
  REQUIRE(model.sampling_direct.has_value());
  CHECK(model.sampling_direct->presence_penalty == -0.5);
  const std::string shown = config_to_toml(parsed.config);
  CHECK(shown.find("sampling_thinking = { temperature = 1.0, top_p = 0.95, top_k = 20 }\n") !=
        std::string::npos);
  CHECK(config_to_toml(parse_config(shown, "/c").config) == shown);
  CHECK(config_to_json(parsed.config).dump().find(R"("sampling_thinking":{"temperature":1.0,"top_p":)") !=
        std::string::npos);
  const auto row = parse_config(std::string(kSmallest) + "sampling_direct = {}\n", "/c");
  CHECK_FALSE(row.config.default_model.sampling_direct.has_value());

  const std::string key = "4 model.default.sampling_direct: ";
  CHECK(problem("sampling_direct = 0.7\n") ==
        key + "must be a table, such as { temperature = 0.7 }, not a fraction");
  CHECK(problem("sampling_direct = { heat = 1 }\n").starts_with(key + "\"heat\" is none of: temperature, top_p"));
  CHECK(problem("sampling_direct = { temperature = 2.1 }\n") == key + "temperature is not within 0 to 2");
  CHECK(problem("sampling_direct = { temperature = nan }\n") == key + "temperature is not within 0 to 2");
  CHECK(problem("sampling_direct = { top_p = 0 }\n").starts_with(key + "top_p is not within"));
  CHECK(problem("sampling_direct = { top_k = 2.5 }\n") == key + "top_k must be an integer");
  CHECK(problem("sampling_direct = { min_p = \"x\" }\n") == key + "min_p must be a number");
}

TEST_CASE("each kind of mistake is told apart") {
  CHECK(problem("[limits]\nheader_deadline = 10\n") ==
        "5 limits.header_deadline: must be a string with a unit, such as \"10s\", not an integer");
  CHECK(problem("[limits]\nheader_deadline = \"10sec\"\n") ==
        "5 limits.header_deadline: \"10sec\" is no duration: write a whole number and one of ms, s, "
        "m, h, such as \"10s\"");
  CHECK(problem("[limits]\nbody_bytes = \"9007199254740993TiB\"\n") ==
        "5 limits.body_bytes: \"9007199254740993TiB\" is too large");
  CHECK(problem("[limits]\nheader_deadline = \"2h\"\n") ==
        "5 limits.header_deadline: 2h is not within 100ms to 1h");
  CHECK(problem("[server]\nstreams = 4\n") ==
        "5 server.streams: unknown key: it belongs to [limits]");
  CHECK(problem("[server]\nrequire_key = \"no\"\n") ==
        "5 server.require_key: must be true or false, not a string");
  CHECK(problem("[serverr]\n") == "4 serverr: unknown table, did you mean \"server\"?");
  CHECK(problem("[model.third]\n") == "4 model.third: unknown key");
  CHECK(problems(std::string("limits = 3\n") + kSmallest) ==
        std::vector<std::string>{"1 limits: must be a table"});
}

TEST_CASE("relations between keys are checked") {
  CHECK(problem("[server]\nlisten = \"0.0.0.0:80\"\nrequire_key = false\n") ==
        "6 server.require_key: must be true when server.listen is not a loopback address");
  CHECK(problem("aliases = [\"optional\"]\n") ==
        "4 model.default.aliases: \"optional\" already means the role");
  CHECK(problem("[model.optional]\nname = \"a\"\nfile = \"b\"\n") ==
        "5 model.optional.name: \"a\" is used by model.default.name too");
  const std::string deep(120, 'd');
  const auto found = problems(std::string(kSmallest) + "[server]\nrun_dir = \"/" + deep + "\"\n");
  REQUIRE(found.size() == 2);
  CHECK(found[0].find("bytes, at most 107 are possible: choose a shorter run_dir") !=
        std::string::npos);
}

TEST_CASE("a duplicate key and broken TOML name their line") {
  const auto duplicate = problems("[server]\nlisten = \"a\"\nlisten = \"b\"\n");
  REQUIRE(duplicate.size() == 1);
  CHECK(duplicate[0].starts_with("3 "));
  const auto broken = problems("[server]\nlisten = \n");
  REQUIRE(broken.size() == 1);
  CHECK(broken[0].starts_with("2 "));
  // toml++ 3.3 aborts here when its assertions are on.
  const auto header = problems("[server]\n[$model.default]\n");
  REQUIRE(header.size() == 1);
  CHECK(header[0].starts_with("2 "));
}

TEST_CASE("characters outside ASCII stand in strings and comments only") {
  const std::string rest = "[model.default]\nname = \"m\"\nfile = \"/f\"\n";
  for (const char* good : {"# \u00e9\n", "[server] # \"\u00e9\n", "\xEF\xBB\xBF# x\n",
                           "# it's\n# \u00e9\n"}) {
    CHECK(problems(good + rest).empty());
  }
  CHECK(problems("[model.default]\nname = \"m\"\nfile = \"/\\\"\u00e9'#\"\n").empty());
  CHECK(problems("[model.default]\nname = \"m\"\nfile = '/\\\u00e9'\n").empty());
  for (const char* bad : {"\n[server\u01b8]\n", "[server]\n\u00e9 = 1\n", "# x\nlisten\u00a0= 1\n",
                          "a = '\\'\nb\u00e9 = 1\n"}) {
    const auto found = problems(bad + rest);
    REQUIRE(found.size() == 1);
    CHECK(found[0].starts_with("2 "));
  }
}

TEST_CASE("an empty file lacks the default model") {
  CHECK(problems("") == std::vector<std::string>{
                            "0 model.default: is required: the model that everybody uses"});
}

TEST_CASE("the shown configuration reads back as the same") {
  const ParsedConfig first = parse_config(
      std::string(kSmallest) + "kv = \"2GiB\"\n[server]\nhosts = [\"x\"]\n[model.optional]\nname = "
                               "\"b\"\nfile = \"b\"\n",
      "/c");
  REQUIRE(first.problems.empty());
  const std::string text = config_to_toml(first.config);
  const ParsedConfig second = parse_config(text, "/elsewhere");
  REQUIRE(problems_text("f", second.problems).empty());
  CHECK(config_to_toml(second.config) == text);
  CHECK(config_to_json(second.config) == config_to_json(first.config));
}

TEST_CASE("weights of keys") {
  const auto weights = parse_key_weights({"tdm_0123abcd:3", "a:b:100"});
  REQUIRE(weights.ok());
  CHECK(weights->at("tdm_0123abcd") == 3.0);
  CHECK(weights->at("a:b") == 100.0);
  for (const char* bad : {"tdm_0123abcd", "tdm_0123abcd:", "tdm_0123abcd:0", "tdm_0123abcd:101", "a:1x", ":3"}) {
    INFO(bad);
    CHECK_FALSE(parse_key_weights({bad}).ok());
  }
  CHECK_FALSE(parse_key_weights({"a:1", "a:2"}).ok());
  const ParsedConfig parsed = parse_config(std::string(kSmallest) + "[queue]\nkey_weights = [\"a:0\"]\n", "/c");
  REQUIRE(parsed.problems.size() == 1);
  CHECK(parsed.problems[0].key == "queue.key_weights");
}

TEST_CASE("addresses to listen on") {
  CHECK(parse_listen("127.0.0.1:8080").value().loopback);
  CHECK(parse_listen("[::1]:1").value().host == "::1");
  CHECK(parse_listen("localhost:0").value().host == "127.0.0.1");
  CHECK_FALSE(parse_listen("0.0.0.0:80").value().loopback);
  for (const char* bad : {"", ":80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "::1:80",
                          "127.0.0.1:8x", "a b:80"}) {
    CHECK_FALSE(parse_listen(bad).ok());
  }
}

}  // namespace
}  // namespace tandem::service
