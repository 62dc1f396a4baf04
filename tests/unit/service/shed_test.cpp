// Shedding: what each step means for the two models, in which order, and the way back.
#include "service/shed.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "service/shed_worker.h"
#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

using budget::Level;
using budget::shed_for;
using Act = OptionalHold::Act;

TEST_CASE("the optional model is held off and comes back by itself") {
  OptionalHold hold;
  CHECK(hold.step(false, ModelState::ready, 0) == Act::none);
  CHECK(hold.step(true, ModelState::ready, 100) == Act::stop);
  CHECK(hold.step(true, ModelState::draining, 200) == Act::none);
  CHECK(hold.step(true, ModelState::stopped, 300) == Act::none);
  CHECK(hold.holds());
  CHECK(hold.step(false, ModelState::stopped, 400) == Act::start);
  CHECK_FALSE(hold.holds());
  CHECK(hold.step(false, ModelState::loading, 500) == Act::none);
}

TEST_CASE("one that the guard told to end is stopped, not started anew") {
  OptionalHold hold;
  CHECK(hold.step(true, ModelState::draining, 100) == Act::stop);  // the guard's TERM came first
  CHECK(hold.step(true, ModelState::stopped, 200) == Act::none);
  OptionalHold killed;
  CHECK(killed.step(true, ModelState::backoff, 100) == Act::stop);  // its KILL
}

TEST_CASE("who starts it while it is held off is told again, once a second") {
  OptionalHold hold;
  CHECK(hold.step(true, ModelState::ready, 100) == Act::stop);
  CHECK(hold.step(true, ModelState::stopped, 200) == Act::none);
  CHECK(hold.step(true, ModelState::starting, 300) == Act::none);
  CHECK(hold.step(true, ModelState::starting, 1100) == Act::stop);
  CHECK(hold.step(true, ModelState::loading, 1200) == Act::none);
}

TEST_CASE("one that an administrator had stopped stays stopped; one that he started is his") {
  OptionalHold hold;
  CHECK(hold.step(true, ModelState::stopped, 100) == Act::none);
  CHECK(hold.step(false, ModelState::stopped, 200) == Act::none);
  OptionalHold started;
  CHECK(started.step(true, ModelState::ready, 100) == Act::stop);
  CHECK(started.step(false, ModelState::draining, 200) == Act::none);  // still going down
  CHECK(started.step(false, ModelState::stopped, 300) == Act::start);
  OptionalHold theirs;
  CHECK(theirs.step(true, ModelState::ready, 100) == Act::stop);
  CHECK(theirs.step(false, ModelState::loading, 200) == Act::none);
  CHECK(theirs.step(false, ModelState::stopped, 300) == Act::none);
  OptionalHold failed;
  CHECK(failed.step(true, ModelState::ready, 100) == Act::stop);
  CHECK(failed.step(false, ModelState::failed, 200) == Act::start);
}

struct FakeActs : ShedActs {
  void tell_engine(Role role, int64_t slots, int64_t chunk_tokens) override {
    log.push_back(std::string(role_name(role)) + " " + std::to_string(slots) + "/" + std::to_string(chunk_tokens));
  }
  void drop_prefixes(Role role, bool drop) override {
    log.push_back(std::string(role_name(role)) + (drop ? " drops prefixes" : " keeps prefixes"));
  }
  void stop_optional() override { log.emplace_back("stop"); }
  void start_optional() override { log.emplace_back("start"); }
  void advise_clean_cache() override { log.emplace_back("cache"); }
  void note(budget::ShedStep step, bool engage) override {
    log.push_back((engage ? "+" : "-") + std::string(budget::shed_step_name(step)));
  }
  std::vector<std::string> take() { return std::exchange(log, {}); }
  std::vector<std::string> log;
};

using Log = std::vector<std::string>;

TEST_CASE("steps come in order, engines are told on the way, and all is released in reverse") {
  World world;
  world.config.default_model.slots = 8;
  world.config.optional_model->slots = 8;
  world.begin();
  REQUIRE(world.until_ready(0));
  REQUIRE(world.until_ready(1));
  FakeActs acts;
  Shedder shedder(world.tenant(0), &world.tenant(1), acts, 512, 512);
  shedder.follow(0, Level::green, "", 0);
  CHECK(acts.take().empty());

  shedder.follow(shed_for(Level::yellow, false), Level::yellow, "short", 100);
  CHECK(acts.take() == Log{"+optional_no_long_prefills", "+optional_freeze_growth", "+pause_background",
                           "+optional_half_slots", "optional 4/256"});
  CHECK(world.status(1).slots == 4);
  CHECK(world.status(0).slots == 8);
  CHECK(world.tenant(0).limits().prompt_tokens_max == 0);
  CHECK(world.tenant(1).limits().prompt_tokens_max == world.status(1).facts->context_tokens_max / 4);
  CHECK(world.tenant(1).limits().retry_after_s == 5);

  shedder.follow(shed_for(Level::orange, false), Level::orange, "short", 200);
  CHECK(acts.take() == Log{"+optional_one_slot", "optional 1/256", "+optional_drop_prefix_cache",
                           "optional drops prefixes", "+smaller_chunks",
                           "optional 1/128", "default 8/128", "+advise_clean_cache", "cache",
                           "+default_prompt_cap"});
  CHECK(world.tenant(0).limits().prompt_tokens_max == world.status(0).facts->context_tokens_max / 2);

  shedder.follow(shed_for(Level::red, false), Level::red, "very short", 300);
  CHECK(acts.take() == Log{"+optional_off", "stop"});
  const auto refused = world.tenant(1).prepare({.input = protocol::PrepareText{.text = "x"}}, soon());
  CHECK(refused.ok());  // it still runs: nobody stepped the supervisor
  shedder.follow(shed_for(Level::red, true), Level::red, "very short", 400);
  CHECK(acts.take() == Log{"+default_short_prompts", "+default_fewer_slots", "default 4/128"});
  CHECK(world.status(0).slots == 4);
  CHECK(world.tenant(0).limits().retry_after_s == 30);

  REQUIRE(world.supervisor->post(Role::optional_model, ModelCommand::unload).ok());
  REQUIRE(world.until([&] { return world.state(1) == ModelState::stopped; }));
  const auto off = world.tenant(1).prepare({.input = protocol::PrepareText{.text = "x"}}, soon());
  REQUIRE_FALSE(off.ok());
  CHECK(off.error().message == "model beta is stopped for now: very short");
  CHECK(off.error().path == kShortOfMemory);

  shedder.follow(0, Level::green, "", 500);
  CHECK(acts.take() ==
        Log{"-default_fewer_slots", "default 8/128", "-default_short_prompts", "-optional_off",
            "-default_prompt_cap", "-advise_clean_cache", "-smaller_chunks", "optional 1/256", "default 8/0",
            "-optional_drop_prefix_cache", "optional keeps prefixes", "-optional_one_slot", "optional 4/256", "-optional_half_slots",
            "optional 8/0", "-pause_background", "-optional_freeze_growth", "-optional_no_long_prefills", "start"});
  CHECK(world.tenant(0).limits() == TenantLimits{});
  CHECK(world.tenant(1).limits() == TenantLimits{});
}

TEST_CASE("a box without an optional model sheds too") {
  World world;
  world.config.optional_model.reset();
  world.begin();
  REQUIRE(world.until_ready(0));
  FakeActs acts;
  Shedder shedder(world.tenant(0), nullptr, acts, 512, 0);
  shedder.follow(shed_for(Level::black, true), Level::black, "short", 0);
  CHECK(world.status(0).slots == 2);
  CHECK(std::count(acts.log.begin(), acts.log.end(), "stop") == 0);
}

TEST_CASE("slots that a budget changes meanwhile are shed as well") {
  World world;
  world.begin();
  REQUIRE(world.until_ready(1));
  FakeActs acts;
  Shedder shedder(world.tenant(0), &world.tenant(1), acts, 512, 512);
  shedder.follow(shed_for(Level::yellow, false), Level::yellow, "short", 0);
  (void)acts.take();
  world.tenant(1).set_slots(16);
  shedder.follow(shed_for(Level::yellow, false), Level::yellow, "short", 100);
  CHECK(acts.take() == Log{"optional 8/256"});
  CHECK(world.status(1).slots == 8);
}

TEST_CASE("files that a process maps are served from, others beside them are not") {
  TempDir dir;
  const std::string served = dir.path() + "/served.gguf";
  const std::string other = dir.path() + "/other.gguf";
  std::filesystem::copy_file("/proc/self/exe", served);
  std::ofstream(other) << "x";
  std::ofstream(dir.path() + "/notes.txt") << "x";
  CHECK(unserved_files({served}, {}) == Log{other, served});
  // The program itself, by another name of the same file.
  const std::string mapped = dir.path() + "/mapped.gguf";
  std::filesystem::create_symlink("/proc/self/exe", mapped);
  CHECK(unserved_files({served}, {int64_t{::getpid()}}) == Log{other, served});
  CHECK(unserved_files({served}, {int64_t{::getpid()}, 0}).empty());  // of process 0 nothing is known
}

}  // namespace
}  // namespace tandem::service
