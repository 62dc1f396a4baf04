// Canary over fake engines that say how long they decoded: what is measured, kept, compared and told.
#include <algorithm>
#include <atomic>
#include <thread>

#include "service/canary.h"
#include "service/store/store.h"
#include "service/version.h"
#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

constexpr int64_t kUsPerToken = 10'000;
constexpr const char* kScript = "tokens 64\ndecode_us 630000\n";  // 63 gaps of 10 ms

struct Cage {
  SystemClock clock;  // deadlines of answers are real
  World world{kScript, "tokens 8\n"};
  std::unique_ptr<Store> store;
  std::unique_ptr<Canary> canary;
  std::atomic<budget::Level> level{budget::Level::green};

  Cage() {
    world.begin();
    REQUIRE(world.until_ready(0));
    REQUIRE(world.until_ready(1));
    auto opened = Store::open({.path = world.dir.path() + "/canary.db"});
    REQUIRE(opened.ok());
    store = std::move(*opened);
    canary = std::make_unique<Canary>(Canary::Options{}, *world.supervisor, *store, world.incidents, clock, [this] {
      Pressure pressure;
      pressure.level = level;
      return pressure;
    });
  }
  // As measured before, `count` times.
  void remember(const char* cell, int64_t us_per_token, int count = 1) const {
    for (int i = 0; i < count; ++i) {
      const auto kept = store->add_canary({.weights = world.supervisor->tenant(Role::default_model)->status().weights_hash,
                                           .version = std::string(kVersion),
                                           .cell = cell,
                                           .us_per_token = us_per_token,
                                           .measured_unix_s = 1});
      REQUIRE(kept.ok());
    }
  }
  [[nodiscard]] Json shown() const {
    auto shown = canary->show();
    REQUIRE(shown.ok());
    return std::move(*shown);
  }
  [[nodiscard]] Json cell(const std::string& name) const {
    const Json all = shown();
    for (const Json& each : all.find("cells")->as_array()) {
      if (each.find("cell")->as_string() == name) return each;
    }
    return {};
  }
  void run_all() {
    const auto begun = canary->run();
    INFO((begun.ok() ? "" : begun.error().message));
    REQUIRE(begun.ok());
    REQUIRE(world.until([&] { return !shown().find("running")->as_bool(); }));
    CHECK(shown().find("problem")->as_string().empty());
  }
  [[nodiscard]] bool told() const { return world.incidents.open.contains("default_slowed alpha"); }
};

}  // namespace

TEST_CASE("canary: an order measures every cell that the box has, and keeps it") {
  Cage cage;
  CHECK(cage.canary->solo_us() == 0);
  cage.canary->start();
  cage.run_all();
  for (const char* name : {"idle", "prefill", "decode"}) {
    INFO(name);
    const Json cell = cage.cell(name);
    REQUIRE(cell.is_object());
    CHECK(cell.find("us_per_token")->as_integer() == kUsPerToken);
    CHECK(cell.find("baseline_us")->as_integer() == 0);  // nothing earlier
    CHECK(cell.find("loss_permille")->as_integer() == 0);
  }
  CHECK(cage.cell("alone").is_null());  // the optional model is there
  CHECK(cage.canary->solo_us() == kUsPerToken);
  CHECK_FALSE(cage.told());
}

TEST_CASE("canary: a default model slower than it was alone is an incident at the second time, and over with a good one") {
  Cage cage;
  cage.remember("alone", kUsPerToken / 2);
  cage.canary->start();
  cage.run_all();
  CHECK_FALSE(cage.told());
  CHECK(cage.cell("idle").is_null());  // what is too slow must not become what later ones are measured by
  cage.run_all();
  REQUIRE(cage.told());
  CHECK(cage.world.incidents.open.at("default_slowed alpha") ==
        "10000 us per token with the optional model idle, 5000 us before");
  cage.remember("alone", kUsPerToken, 3);
  cage.run_all();
  CHECK_FALSE(cage.told());
  CHECK(cage.cell("idle").find("baseline_us")->as_integer() == kUsPerToken);
}

TEST_CASE("canary: a change that costs the default model more than it may is named, others are not") {
  Cage cage;
  CHECK(cage.canary->check_change().empty());  // nothing to compare with
  cage.remember("alone", kUsPerToken * 95 / 100, 5);
  CHECK(cage.canary->check_change().empty());  // five percent
  cage.remember("alone", kUsPerToken * 80 / 100, 7);
  CHECK(cage.canary->check_change() ==
        "the default model loses 20 % (10000 us per token, 8000 us before); 10 % are allowed");
  cage.level = budget::Level::yellow;
  CHECK(cage.canary->check_change().empty());  // not to be measured now
}

TEST_CASE("canary: nothing is measured while the host is short, a model is away, or clients are answered") {
  Cage cage;
  cage.level = budget::Level::orange;
  auto refused = cage.canary->run();
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::unavailable);
  CHECK(refused.error().message == "nothing is measured now: the host is short of memory");
  CHECK(cage.shown().find("hindrance")->as_string() == "the host is short of memory");
  cage.level = budget::Level::green;
  {
    Tenant& first = cage.world.tenant(0);
    auto generation = first.submit(*prepare_text(first), {{.max_tokens = 64}}, {});
    REQUIRE(generation.ok());
    refused = cage.canary->run();
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().message == "nothing is measured now: requests of clients run");
    while (!(*generation)->done()) REQUIRE((*generation)->next_event(soon()).has_value());
  }
  cage.world.kill_engine(0);
  REQUIRE(cage.world.until([&] { return cage.world.state(0) != ModelState::ready; }));
  refused = cage.canary->run();
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message == "nothing is measured now: the default model is not ready");
}

TEST_CASE("canary: an answer that is cut says nothing") {
  Cage cage;
  write_script(cage.world.dir.path() + "/default.script", "tokens 10\ndecode_us 630000\n");
  cage.world.kill_engine(0);
  REQUIRE(cage.world.until([&] { return cage.world.state(0) != ModelState::ready; }));
  REQUIRE(cage.world.until_ready(0));
  cage.canary->start();
  REQUIRE(cage.canary->run().ok());
  REQUIRE(cage.world.until([&] { return !cage.shown().find("running")->as_bool(); }));
  CHECK(cage.shown().find("problem")->as_string() == "the answer was cut");
  CHECK(cage.shown().find("cells")->as_array().empty());
}

}  // namespace tandem::service
