#include "base/relay_spec.h"

#include <string>

#include "tests/support/catch.h"

namespace tandem {
namespace {

RelaySpec whole() {
  RelaySpec spec;
  spec.kind = RelayKind::vllm;
  spec.mode = RelayMode::raw;
  spec.command = {"/opt/vllm", "serve", "model"};
  spec.stop_command = {"docker", "stop", "model"};
  spec.environment = {{"CACHE", "1"}};
  spec.log_path = "/var/log/model.log";
  spec.working_directory = "/srv";
  spec.urls = {"http://127.0.0.1:9001"};
  spec.key_file = "/etc/key";
  spec.served_model = "model";
  spec.weights_identity = "abc";
  spec.dialect = {{"thinking_argument", "enable_thinking"}};
  spec.slots = 4;
  spec.context_tokens = 8192;
  spec.kv_bytes = 1 << 30;
  spec.expected = {{"kv_type", "fp8"}};
  spec.start_deadline_ms = 1;
  spec.stop_deadline_ms = 2;
  spec.health_every_ms = 30;
  spec.health_deadline_ms = 40;
  return spec;
}

TEST_CASE("a relay's specification is what was written") {
  const Json json = whole().to_json();
  const auto read = RelaySpec::from_json(json);
  REQUIRE(read.ok());
  CHECK(read->to_json() == json);
  CHECK(read->is_raw());
}

TEST_CASE("a relay's specification names the field that is wrong") {
  const auto path_of = [](std::string_view name, Json value) {
    Json json = whole().to_json();
    json.set(name, std::move(value));
    const auto read = RelaySpec::from_json(json);
    REQUIRE_FALSE(read.ok());
    return read.error().path;
  };
  CHECK(path_of("kind", "other") == "kind");
  CHECK(path_of("mode", "cooked") == "mode");
  CHECK(path_of("urls", Json::array()) == "urls");
  CHECK(path_of("urls", Json(Json::Array{"127.0.0.1:80"})) == "urls");
  CHECK(path_of("urls", Json(Json::Array{"http://a", "http://b"})) == "urls");
  CHECK(path_of("command", Json(Json::Array{""})) == "command");
  CHECK(path_of("environment", Json::object({{"A", 1}})) == "environment.A");
  CHECK(path_of("slots", -1) == "slots");
}

TEST_CASE("without a mode, engines that render and tokenise are used raw") {
  const auto mode_of = [](const char* kind) {
    const auto read = RelaySpec::from_json(
        Json::object({{"kind", kind}, {"urls", Json(Json::Array{"https://host/path"})}}));
    REQUIRE(read.ok());
    return read->is_raw();
  };
  CHECK(mode_of("llama-server"));
  CHECK(mode_of("vllm"));
  CHECK_FALSE(mode_of("openai"));
}

}  // namespace
}  // namespace tandem
