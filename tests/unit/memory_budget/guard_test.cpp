// Who is stopped, when and how: the kill path of tandem-guard with samples and processes by hand.
#include "memory_budget/guard.h"

#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace tandem::budget {
namespace {

int64_t gib(double n) { return static_cast<int64_t>(n * static_cast<double>(kGiB)); }

struct World {
  GuardMachine guard{floors_for(gib(121.7))};
  GuardInput input;
  std::vector<std::string> log;  // "terminate optional red"
  int64_t first_action_ms = -1;
  int64_t last_grace_ms = -1;

  World() {
    input.sample.available_bytes = gib(40);
    input.tenants[0] = {.alive = true};
    input.tenants[1] = {.alive = true};
  }
  GuardOutput step(int64_t ms = 100) {
    input.sample.at_ms += ms;
    const GuardOutput out = guard.update(input);
    for (size_t i = 0; i < out.action_count; ++i) {
      const GuardAction& a = out.actions[i];
      log.push_back(std::string(guard_action_name(a.kind)) + " " + role_name(a.role) + " " +
                    guard_reason_name(a.reason));
      if (first_action_ms < 0) first_action_ms = input.sample.at_ms;
      if (a.kind == GuardActionKind::terminate) last_grace_ms = a.grace_ms;
    }
    return out;
  }
  void at(double available, int64_t ms) {
    input.sample.available_bytes = gib(available);
    for (int64_t end = input.sample.at_ms + ms; input.sample.at_ms < end;) step();
  }
  void fall(double to, int64_t ms) {
    const double from = static_cast<double>(input.sample.available_bytes) / static_cast<double>(kGiB);
    const int64_t steps = ms / 50;
    for (int64_t i = 1; i <= steps; ++i) {
      input.sample.available_bytes =
          gib(from + (to - from) * static_cast<double>(i) / static_cast<double>(steps));
      step(50);
    }
  }
  TenantView& optional_model() { return input.tenants[1]; }
  TenantView& default_model() { return input.tenants[0]; }
};

using Log = std::vector<std::string>;

}  // namespace

TEST_CASE("red terminates the optional model and kills it after the grace") {
  World w;
  w.at(9, 10'000);
  w.fall(7, 8000);
  w.at(7, 1000);
  REQUIRE(w.log.empty());
  w.input.sample.psi_full_avg10 = 800;
  w.at(7, 200);
  CHECK(w.log == Log{"terminate optional red"});
  CHECK(w.last_grace_ms == 3000);
  w.at(7, 2800);
  CHECK(w.log.size() == 1);
  w.at(7, 200);
  CHECK(w.log == Log{"terminate optional red", "kill optional grace_over"});
  w.optional_model().alive = false;
  w.at(7, 60'000);
  CHECK(w.log.size() == 2);  // the default model is left alone at red
}

TEST_CASE("a fast fall shortens the grace") {
  World w;
  w.at(10, 10'000);
  w.fall(7, 1500);  // 2 GiB/s
  REQUIRE(w.log.at(0) == "terminate optional red");
  CHECK(w.last_grace_ms > 1400);  // from just below 8 to 4 at 2 GiB/s
  CHECK(w.last_grace_ms <= 2000);
}

TEST_CASE("black kills the optional model in the first sample below") {
  World w;
  w.at(30, 1000);
  w.input.sample.available_bytes = gib(3.9);
  w.step();
  CHECK(w.log == Log{"kill optional black"});
  w.step();
  CHECK(w.log.size() == 1);
  w.at(3.9, 1000);  // a group that does not die is killed again
  CHECK(w.log.size() == 2);
}

TEST_CASE("black kills a loading default model, and only then") {
  World w;
  w.default_model().loading = true;
  w.input.sample.available_bytes = gib(3.9);
  w.step();
  CHECK(w.log == Log{"kill optional black", "kill default loading_at_black"});
  World serving;
  serving.optional_model().alive = false;
  serving.at(3.9, 60'000);
  CHECK(serving.log.empty());  // low, but not falling
}

TEST_CASE("the default model is restarted when memory still falls below half of black") {
  World w;
  w.optional_model().alive = false;
  w.at(3.9, 1000);
  w.fall(2.1, 5000);
  CHECK(w.log.empty());  // falling, above half of black
  w.fall(1.8, 900);
  CHECK(w.log == Log{"kill default still_falling", "restart_default default still_falling"});
  w.fall(1.2, 2000);  // a group that does not die is killed again, and restarted once
  CHECK(w.log.back() == "kill default still_falling");
}

TEST_CASE("the two seconds begin when the optional model has exited") {
  World w;
  w.at(1.9, 100);
  w.fall(1.0, 5000);  // killed but not yet gone
  for (const std::string& line : w.log) CHECK(line == "kill optional black");
  w.optional_model().alive = false;
  const size_t before = w.log.size();
  w.fall(0.7, 1800);
  CHECK(w.log.size() == before);
  w.fall(0.5, 1000);
  CHECK(w.log.size() == before + 2);
}

TEST_CASE("memory that comes back starts the two seconds again") {
  World w;
  w.optional_model().alive = false;
  w.at(1.9, 100);
  for (int i = 0; i < 20; ++i) {
    w.fall(1.6, 1500);
    w.fall(1.9, 500);
  }
  CHECK(w.log.empty());
}

TEST_CASE("the loading model is the victim at red, whichever it is") {
  World w;
  w.default_model().loading = true;
  w.at(13, 10'000);
  w.fall(11, 500);
  CHECK(w.log == Log{"terminate default red"});
  World o;
  o.optional_model().loading = true;
  o.at(13, 10'000);
  o.fall(11, 500);
  CHECK(o.log == Log{"terminate optional red"});
}

TEST_CASE("13 GiB in 3 s after the weights: the loader is stopped before 6.27 GiB") {
  World w;
  w.default_model().alive = false;
  w.optional_model().loading = true;
  w.at(28.97, 10'000);
  w.fall(25, 8000);
  const auto fall_until_action = [&w] {
    double lowest = 25;
    while (w.log.empty() && lowest > 5) {
      lowest -= 13.2 / 3.0 / 20.0;
      w.input.sample.available_bytes = gib(lowest);
      w.step(50);
    }
    return lowest;
  };
  CHECK(fall_until_action() > 11.3);  // orange's floor and two samples
  CHECK(w.log == Log{"terminate optional red"});
}

TEST_CASE("sampling is 20 Hz while a model loads and 10 Hz after") {
  World w;
  CHECK(w.step().next_sample_ms == 100);
  w.optional_model().loading = true;
  CHECK(w.step().next_sample_ms == 50);
}

TEST_CASE("no action ever names a tenant that is not alive", "[property]") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    World w;
    for (int i = 0; i < 3000; ++i) {
      const auto dice = random() % 100;
      if (dice < 3) w.optional_model().alive = !w.optional_model().alive;
      if (dice == 3) w.default_model().alive = !w.default_model().alive;
      if (dice == 4) w.optional_model().loading = !w.optional_model().loading;
      if (dice == 5) w.default_model().loading = !w.default_model().loading;
      if (dice == 6) w.input.sample.psi_full_avg10 = static_cast<int32_t>(random() % 1600);
      if (dice < 50) w.input.sample.available_bytes = static_cast<int64_t>(random() % 30) * kGiB / 2;
      const GuardOutput out = w.step(static_cast<int64_t>(random() % 200) + 1);
      for (size_t a = 0; a < out.action_count; ++a) {
        const GuardAction& action = out.actions[a];
        REQUIRE(w.input.tenants[role_index(action.role)].alive);
        const bool touches_default = action.role == Role::default_model;
        const bool allowed = w.default_model().loading ||
                             w.input.sample.available_bytes < w.guard.floors().black_enter / 2 ||
                             action.reason == GuardReason::grace_over;
        REQUIRE((!touches_default || allowed));
      }
      const bool below_black = w.input.sample.available_bytes < w.guard.floors().black_enter;
      if (below_black) REQUIRE(out.reading.level == Level::black);
    }
  }
}

}  // namespace tandem::budget
