// Retry budgets, adoption and the end of the restart machine.
#include "tests/unit/memory_budget/restart_world.h"

namespace tandem::budget {
namespace {

using World = RestartWorld;

TEST_CASE("restart: crashes that memory has nothing to do with are retried in seconds, within a window") {
  World w;
  RestartTimes times;
  times.quick = QuickRestarts{.restarts = 3, .window_ms = 100'000, .first_ms = 1000};
  w.machine = RestartMachine{floors_for(gib(121.7)), times};
  w.machine.set_profile(Role::default_model, kDefault, {});
  w.machine.set_profile(Role::optional_model, kOptional, kSmall);
  w.boot();
  const auto back_after_s = [&w](Role role) {
    w.machine.failed(role, {.error = "segmentation fault"});
    w.end(role);
    int64_t seconds = 0;
    for (; seconds < 60 && w.process(role).alive == false; ++seconds) w.run_s(1);
    return seconds;
  };
  CHECK(back_after_s(Role::default_model) <= 3);
  CHECK(back_after_s(Role::default_model) <= 4);
  CHECK(back_after_s(Role::default_model) <= 6);
  CHECK(back_after_s(Role::default_model) == 60);
  CHECK(w.machine.state(Role::default_model) == RunState::given_up);
  CHECK(w.texts["default retries_exhausted"] == "after 3 retries; the first error: segmentation fault");
  w.run_s(200);
  CHECK(w.machine.state(Role::default_model) == RunState::given_up);
  w.machine.request_start(Role::default_model);
  w.run_s(100);
  REQUIRE(w.machine.state(Role::default_model) == RunState::running);
  // Outside the window they do not add up.
  for (int i = 0; i < 6; ++i) {
    w.run_s(101);
    CHECK(back_after_s(Role::default_model) <= 3);
  }
  w.run_s(100);
  // Where memory may be the cause the way is the slow one.
  w.machine.failed(Role::default_model, {.error = "killed by signal 9", .memory = true});
  w.end(Role::default_model);
  w.run_s(25);
  CHECK(w.machine.state(Role::default_model) == RunState::backoff);
  w.run_s(100);
  CHECK(w.machine.state(Role::default_model) == RunState::running);
  // So is an orange level.
  w.sight.level = Level::orange;
  CHECK(back_after_s(Role::default_model) > 25);
  w.sight.level = Level::green;
  w.run_s(100);
  // What no retry can help is given up at once.
  w.machine.failed(Role::default_model, {.error = "no template", .permanent = true});
  w.end(Role::default_model);
  w.run_s(10);
  CHECK(w.machine.state(Role::default_model) == RunState::given_up);
}

TEST_CASE("restart: an engine that was found is adopted as it is, loading or ready, and starts nothing") {
  World w;
  w.optional_process() = {.alive = true, .bytes = gib(35), .ready_at_ms = 5000};
  w.look();
  w.machine.adopt(Role::optional_model, w.sight);
  CHECK(w.state() == RunState::loading);
  w.machine.request_start(Role::default_model);
  w.run_s(3);
  CHECK(w.optional_process().alive);  // the default model waits for it instead of stopping it
  w.run_s(80);
  CHECK(w.state() == RunState::running);
  CHECK(w.machine.state(Role::default_model) == RunState::running);
  CHECK(w.count("optional start kv8") == 0);
}

TEST_CASE("restart: at the end both stop at the same time") {
  World w;
  w.boot();
  w.sight.tenants[0].drained = w.sight.tenants[1].drained = true;
  w.machine.close();
  w.run_s(2);
  CHECK_FALSE(w.process(Role::default_model).alive);
  CHECK_FALSE(w.optional_process().alive);
  w.run_s(30);
  CHECK(w.machine.state(Role::default_model) == RunState::off);
  CHECK(w.state() == RunState::off);
}

}  // namespace
}  // namespace tandem::budget
