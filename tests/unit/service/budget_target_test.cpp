// The keeper's hands on real parts: engines over their sockets, changes in the database.
#include "service/budget_target.h"

#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

TEST_CASE("budget target: a model that starts or loads stands in the way of all, and is named") {
  World world("load_ms 400\n");
  world.begin();
  SupervisorBudgets target(*world.supervisor, std::chrono::seconds(20));
  REQUIRE(world.until([&] { return world.state(0) == ModelState::loading; }));
  CHECK(target.heavy_work_under_way() == "model alpha is loading");
  REQUIRE(world.until_ready(0));
  REQUIRE(world.until_ready(1));
  CHECK(target.heavy_work_under_way().empty());
  CHECK(target.status(Role::optional_model).state == ModelState::ready);
  CHECK(target.status(Role::optional_model).pid == world.status(1).pid);
  const auto unload = world.supervisor->post(Role::optional_model, ModelCommand::unload);
  REQUIRE(world.until([&] { return world.state(1) == ModelState::draining; }));
  CHECK(target.heavy_work_under_way() == "model beta is draining");
  REQUIRE(world.until([&] { return world.state(1) == ModelState::stopped; }));
  CHECK(target.heavy_work_under_way().empty());
}

TEST_CASE("budget target: the running engine is told what differs and nothing else") {
  World world;
  world.begin();
  REQUIRE(world.until_ready(0));
  REQUIRE(world.until_ready(1));
  SupervisorBudgets target(*world.supervisor, std::chrono::seconds(20));
  const auto slots = [&](size_t i) { return world.tenant(i).stats(soon())->slots; };
  const int64_t before = slots(1);
  const auto told =
      target.resize(Role::optional_model, {.kv_bytes = std::nullopt, .slots = 11, .batch_tokens = std::nullopt});
  REQUIRE(told.ok());
  CHECK(told->empty());
  CHECK(slots(1) == 11);
  CHECK(slots(0) == before);
  // While the host is short of memory the engine keeps the few slots that it was left with.
  world.tenant(1).set_limits({.slots_max = 1});
  REQUIRE(target.resize(Role::optional_model, {.kv_bytes = std::nullopt, .slots = 9, .batch_tokens = std::nullopt}).ok());
  CHECK(slots(1) == 1);
}

TEST_CASE("budget target: what waits is said, what is refused keeps its reason") {
  World world("pending_resize 1\n", "refuse_resize exhausted\n");
  world.begin();
  REQUIRE(world.until_ready(0));
  REQUIRE(world.until_ready(1));
  SupervisorBudgets target(*world.supervisor, std::chrono::seconds(20));
  const EngineBudget wanted{.kv_bytes = 1 << 20, .slots = std::nullopt, .batch_tokens = std::nullopt};
  CHECK_FALSE(target.resize(Role::default_model, wanted)->empty());
  CHECK(target.resize(Role::optional_model, wanted).error().code == Errc::exhausted);
  world.kill_engine(1);
  REQUIRE(world.until([&] { return world.state(1) == ModelState::backoff; }));
  CHECK(target.resize(Role::optional_model, wanted).error().code == Errc::unavailable);
}

TEST_CASE("budget target: a restart is waited for, and one that does not come back is told with its reason") {
  World world;
  world.config.engines.restarts = 0;
  world.launcher = make_child_launcher();
  const SystemClock clock;
  Supervisor supervisor(world.config, *world.launcher, clock, world.outside(), [] {});
  supervisor.start();
  SupervisorBudgets target(supervisor, std::chrono::seconds(30));
  const auto ready = [&](Role role) { return target.status(role).state == ModelState::ready; };
  const auto end = soon(std::chrono::seconds(20));
  while (!ready(Role::default_model) || !ready(Role::optional_model)) {
    REQUIRE(std::chrono::steady_clock::now() < end);
  }
  const int64_t pid = target.status(Role::optional_model).pid;
  CHECK(target.restart(Role::optional_model).ok());
  CHECK(target.status(Role::optional_model).pid != pid);
  write_script(world.dir.path() + "/optional.script", "load_ms 300\nload_fail no memory\n");
  const auto failed = target.restart(Role::optional_model);
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.error().message.find("no memory") != std::string::npos);
  supervisor.stop(false);
}

TEST_CASE("budget book: records come back newest first, through a restart; broken ones are left out") {
  const TempDir dir;
  const std::string path = dir.path() + "/tandem.db";
  BudgetRecord record{.at_unix_s = 1'700'000'000,
                      .role = "optional",
                      .model = "beta",
                      .file = "/models/beta.gguf",
                      .who = "anna",
                      .uid = 1000,
                      .forced = true,
                      .before = {},
                      .after = {},
                      .configured = {},
                      .how = "live",
                      .text = "a \"text\""};
  record.before.values = {{int64_t{8} << 30, 4, 512, 0}};
  record.after.values = {{int64_t{24} << 30, 4, 512, 0}};
  record.after.overridden[0] = true;
  {
    const auto store = Store::open({.path = path}).value();
    StoreBook book(*store);
    CHECK(book.budget_history()->empty());
    CHECK(book.append_budget(record).value() == 1);
    REQUIRE(store->add_budget_change({.model = "beta", .after = "{}"}).ok());
    record.how = "restart";
    CHECK(book.append_budget(record).value() == 3);
  }
  const auto store = Store::open({.path = path}).value();
  StoreBook book(*store);
  const auto history = book.budget_history().value();
  REQUIRE(history.size() == 2);
  CHECK(history[0].id == 3);
  CHECK(history[0].how == "restart");
  CHECK(history[1].id == 1);
  CHECK(history[1].after == record.after);
  CHECK(history[1].text == "a \"text\"");
  CHECK(store->budget_history("beta", 10)->back().admin_uid == 1000);
  CHECK(store->budget_history("beta", 10)->back().forced);
}

}  // namespace
}  // namespace tandem::service
