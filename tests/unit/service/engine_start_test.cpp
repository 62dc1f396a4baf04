// How an engine of others is started through a relay, adopted, and replaced when it is another one.
#include "service/engine_start.h"

#include <sys/stat.h>

#include <algorithm>

#include "service/atomic_file.h"
#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

// Beta is served by a relay, for which fake_engine stands in.
class ForeignWorld {
 public:
  explicit ForeignWorld(const std::string& script = "") : world("", script) {
    world.config.engines.relay = world.config.engines.binary;
    ModelConfig& model = *world.config.optional_model;
    model.engine = "llama-server";
    model.command = {"/nowhere/llama-server"};
    model.environment = {{"SOME_KEY", "value"}};
  }
  RelaySpec spec() {
    const auto text = read_small_file(world.dir.path() + "/engine-optional.spec.json", 1 << 20);
    REQUIRE(text.ok());
    const auto json = parse_json(*text);
    REQUIRE(json.ok());
    auto out = RelaySpec::from_json(*json);
    INFO((out.ok() ? "" : out.error().message));
    REQUIRE(out.ok());
    return std::move(*out);
  }
  World world;
};

SlotOptions options_of(const ModelConfig& model) {
  return {.model = model, .engines = {}, .sanitizer = {}, .role = budget::Role::optional_model, .run_dir = "/r",
          .log_level = "info"};
}

TEST_CASE("a relay is started with a file for its eyes only, and serves like any engine") {
  ForeignWorld foreign;
  World& world = foreign.world;
  world.begin();
  REQUIRE(world.until_ready(1));
  CHECK(world.status(1).facts.value().slots == 4);
  auto prompt = prepare_text(world.tenant(1));
  CHECK(prompt->prepared().prompt_tokens > 0);

  const RelaySpec spec = foreign.spec();
  CHECK(spec.kind == RelayKind::llama_server);
  CHECK(spec.command.front() == "/nowhere/llama-server");
  CHECK(spec.environment.at("SOME_KEY") == "value");
  CHECK(spec.served_model == "beta");
  CHECK(spec.expected.at("slots") == "4");
  CHECK(spec.urls.size() == 1);
  CHECK(spec.stop_deadline_ms < world.config.engines.stop_deadline.count());
  CHECK(spec.start_deadline_ms == world.config.engines.load_deadline.count());
  struct stat status{};
  REQUIRE(::stat((world.dir.path() + "/engine-optional.spec.json").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  // The port that was free is on the command line and in the address.
  const auto port = std::find(spec.command.begin(), spec.command.end(), "--port");
  REQUIRE(port != spec.command.end());
  CHECK(spec.urls[0] == "http://127.0.0.1:" + *(port + 1));
  CHECK(*(port + 1) != "0");
}

TEST_CASE("a relay that runs is adopted by the next tandemd, unless its engine would be another one") {
  for (const char* change : {"nothing", "arguments", "slots", "alias"}) {
    INFO(change);
    ForeignWorld foreign;
    World& world = foreign.world;
    world.begin();
    REQUIRE(world.until_ready(1));
    const int64_t before = world.status(1).pid;
    world.supervisor->begin_stop(true);
    REQUIRE(world.until([&] { return world.supervisor->stopped(); }));
    world.supervisor.reset();
    ModelConfig& model = *world.config.optional_model;
    if (change == std::string("arguments")) model.arguments = {"-ngl", "0"};
    if (change == std::string("slots")) model.slots = 2;
    if (change == std::string("alias")) model.aliases = {"other"};
    world.begin();
    REQUIRE(world.until([&] {
      return world.state(1) == ModelState::ready && world.status(1).pid != 0 &&
             (world.status(1).adopted || world.status(1).pid != before);
    }));
    const bool same = change == std::string("nothing") || change == std::string("alias");
    CHECK((world.status(1).pid == before) == same);
    CHECK(world.status(1).adopted == same);
  }
}

TEST_CASE("budgets of an engine of others hold from its next start on, also for who adopts it") {
  ForeignWorld foreign;
  World& world = foreign.world;
  world.begin();
  REQUIRE(world.until_ready(1));
  const int64_t before = world.status(1).pid;
  ModelBudget budget = budget_of(*world.config.optional_model);
  budget[BudgetField::slots] = 7;
  world.supervisor->use_budget(Role::optional_model, budget);
  REQUIRE(world.supervisor->post(Role::optional_model, ModelCommand::restart).ok());
  REQUIRE(world.until([&] { return world.state(1) == ModelState::ready && world.status(1).pid != before; }));
  CHECK(world.status(1).facts.value().slots == 7);
  CHECK(foreign.spec().slots == 7);
  // The next tandemd, whose budgets are those by then, finds it to be the one that it would start.
  const int64_t now = world.status(1).pid;
  world.supervisor->begin_stop(true);
  REQUIRE(world.until([&] { return world.supervisor->stopped(); }));
  world.supervisor.reset();
  world.config.optional_model->slots = 7;
  world.begin();
  REQUIRE(world.until_ready(1));
  CHECK(world.status(1).pid == now);
  CHECK(world.status(1).adopted);
}

TEST_CASE("KV that cannot be given to the engine is a failure with the reason, not a loop") {
  ForeignWorld foreign;
  World& world = foreign.world;
  world.config.optional_model->kv_bytes = int64_t{1} << 30;
  world.describe = nullptr;
  world.begin();
  REQUIRE(world.until([&] {
    return world.state(1) == ModelState::backoff || world.state(1) == ModelState::failed;
  }));
  CHECK(world.status(1).message.find("kv in bytes cannot be given to llama-server") != std::string::npos);
}

TEST_CASE("kinds, addresses, key and deadlines of what the relay is told") {
  ModelConfig model;
  model.name = "far";
  model.engine = "remote";
  model.urls = {"http://10.0.0.7:8000", "http://10.0.0.8:8000"};
  model.key_file = "/etc/key";
  model.dialect = {{"reasoning_field", "reasoning"}};
  model.health_every = std::chrono::seconds(5);
  model.start_deadline = std::chrono::minutes(2);
  const auto remote = make_relay_spec(options_of(model), {.model = model});
  REQUIRE(remote.ok());
  CHECK(remote->kind == RelayKind::openai);
  CHECK(remote->command.empty());
  CHECK(remote->urls == model.urls);
  CHECK(remote->key_file == "/etc/key");
  CHECK(remote->dialect == model.dialect);
  CHECK(remote->served_model.empty());
  CHECK(remote->health_every_ms == 5000);
  CHECK(remote->start_deadline_ms == 120'000);
  CHECK(RelaySpec::from_json(remote->to_json()).ok());

  model.key_file = "credential:far";
  ::unsetenv("CREDENTIALS_DIRECTORY");
  CHECK_FALSE(make_relay_spec(options_of(model), {.model = model}).ok());
  ::setenv("CREDENTIALS_DIRECTORY", "/run/credentials/x", 1);
  CHECK(make_relay_spec(options_of(model), {.model = model})->key_file == "/run/credentials/x/far");
  ::unsetenv("CREDENTIALS_DIRECTORY");

  ModelConfig vllm;
  vllm.engine = "vllm";
  vllm.repository = "/m";
  vllm.prompts = "chat";
  vllm.stop_command = {"docker", "stop", "x"};
  const auto spec = make_relay_spec(options_of(vllm), {.model = vllm, .port = 1234});
  REQUIRE(spec.ok());
  CHECK(spec->kind == RelayKind::vllm);
  CHECK(spec->mode == RelayMode::chat);
  CHECK(spec->stop_command == vllm.stop_command);
}

TEST_CASE("the identity of an engine is what it would have to be started anew for") {
  ModelConfig model;
  model.engine = "vllm";
  model.repository = "org/m";
  const std::string same = engine_config_hash(options_of(model));
  const auto changed = [&](const std::function<void(ModelConfig&)>& change) {
    ModelConfig other = model;
    change(other);
    return engine_config_hash(options_of(other)) != same;
  };
  CHECK(changed([](ModelConfig& m) { m.command = {"x"}; }));
  CHECK(changed([](ModelConfig& m) { m.arguments = {"--x"}; }));
  CHECK(changed([](ModelConfig& m) { m.environment = {{"HF_TOKEN", "1"}}; }));
  CHECK(changed([](ModelConfig& m) { m.kv_bytes = 5; }));
  CHECK(changed([](ModelConfig& m) { m.port = 5; }));
  CHECK(changed([](ModelConfig& m) { m.prompts = "chat"; }));
  CHECK_FALSE(changed([](ModelConfig& m) { m.queue_max = 5; }));
  CHECK_FALSE(changed([](ModelConfig& m) { m.thinking = "none"; }));
  CHECK_FALSE(changed([](ModelConfig& m) { m.allow_keys = {"*"}; }));
  // Of our own engine budgets are no part: they change while it runs.
  ModelConfig own;
  own.file = "/f";
  ModelConfig more = own;
  more.slots = 9;
  CHECK(engine_config_hash(options_of(own)) == engine_config_hash(options_of(more)));
}

TEST_CASE("a free port is one that can be had") {
  const auto port = free_port();
  REQUIRE(port.ok());
  CHECK(*port > 0);
  CHECK(*port < 65536);
}

}  // namespace
}  // namespace tandem::service
