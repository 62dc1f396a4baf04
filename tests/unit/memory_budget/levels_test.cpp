// The floors of U11, each way in and out of a level, the second signals, shedding, and the property
// that no latch is left before its time.
#include "memory_budget/levels.h"

#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace tandem::budget {
namespace {

constexpr int64_t kTotal = 1217 * kGiB / 10;

int64_t gib(double n) { return static_cast<int64_t>(n * static_cast<double>(kGiB)); }

// Feeds one host at a fixed rate; fields of `now` hold until they are changed.
struct Feed {
  LevelMachine machine{floors_for(kTotal)};
  LevelSample now;
  int64_t step_ms = 100;

  Feed() { now.available_bytes = gib(60); }
  Level run_ms(int64_t ms) {
    for (int64_t end = now.at_ms + ms; now.at_ms < end;) {
      now.at_ms += step_ms;
      machine.update(now);
    }
    return machine.reading().level;
  }
  Level at(double available, int64_t ms) {
    now.available_bytes = gib(available);
    return run_ms(ms);
  }
  // Slowly enough to be no signal.
  Level glide(double available, int64_t ms) {
    while (now.available_bytes > gib(available)) {
      now.available_bytes = std::max(gib(available), now.available_bytes - gib(0.05));
      run_ms(100);
    }
    return run_ms(ms);
  }
  // A second signal that is not the fall itself.
  Level with_full_stall(int64_t ms) {
    now.psi_full_avg10 = 800;
    return run_ms(ms);
  }
};

}  // namespace

TEST_CASE("floors are the table from 115 to 128 GiB and shares elsewhere") {
  for (const double total : {115.0, 119.6, 121.7, 128.0}) {
    const LevelFloors f = floors_for(gib(total));
    CHECK(f.yellow_enter == 20 * kGiB);
    CHECK(f.yellow_leave == 24 * kGiB);
    CHECK(f.orange_enter == 12 * kGiB);
    CHECK(f.orange_leave == 16 * kGiB);
    CHECK(f.red_enter == 8 * kGiB);
    CHECK(f.red_leave == 14 * kGiB);
    CHECK(f.black_enter == 4 * kGiB);
    CHECK(f.load_free_min == 8 * kGiB);
  }
  const auto near = [](int64_t bytes, double expected) {
    return std::abs(static_cast<double>(bytes) / static_cast<double>(kGiB) - expected) < 0.001;
  };
  const LevelFloors f = floors_for(gib(24));
  CHECK(near(f.black_enter, 0.84));           // 3.5 %
  CHECK(near(f.red_enter, 1.59));             // black + 0.75 is above 6.5 % = 1.56
  CHECK(near(f.orange_enter, 2.4));           // 10 %
  CHECK(near(f.yellow_enter, 3.84));          // 16 %
  CHECK(near(f.yellow_leave, 3.84 * 1.2));
  CHECK(near(f.orange_leave, 2.4 * 1.33));
  CHECK(near(f.red_leave, 1.59 * 1.75));
  CHECK(near(f.load_free_min, 1.56));
  const LevelFloors small = floors_for(gib(8));
  CHECK(near(small.black_enter, 0.75));
  CHECK(near(small.red_enter, 1.5));
  CHECK(near(small.orange_enter, 2.25));
  CHECK(near(small.yellow_enter, 3.25));
  CHECK(floors_for(gib(61)).red_enter == floors_for(gib(61)).load_free_min);
}

TEST_CASE("floors of every box are in order") {
  for (int64_t total = 0; total < 2048 * kGiB; total += 3 * kGiB / 7) {
    const LevelFloors f = floors_for(total);
    REQUIRE(f.black_enter < f.red_enter);
    REQUIRE(f.red_enter < f.orange_enter);
    REQUIRE(f.orange_enter < f.yellow_enter);
    REQUIRE(f.yellow_enter < f.yellow_leave);
    REQUIRE(f.orange_enter < f.orange_leave);
    REQUIRE(f.red_enter < f.red_leave);
  }
}

TEST_CASE("yellow takes five seconds in and sixty out") {
  Feed f;
  CHECK(f.at(60, 1000) == Level::green);
  CHECK(f.at(19.9, 4900) == Level::green);
  CHECK(f.at(19.9, 300) == Level::yellow);
  CHECK(f.at(23.9, 600'000) == Level::yellow);  // above the way in, below the way out
  CHECK(f.at(24.1, 59'000) == Level::yellow);
  CHECK(f.at(23.0, 100) == Level::yellow);  // one dip starts the minute again
  CHECK(f.at(24.1, 59'000) == Level::yellow);
  CHECK(f.at(24.1, 1500) == Level::green);
}

TEST_CASE("a slow neighbour is yellow with memory to spare") {
  Feed f;
  f.now.neighbour_loss_percent = 10;
  CHECK(f.run_ms(20'000) == Level::green);
  f.now.neighbour_loss_percent = 34;
  CHECK(f.run_ms(5200) == Level::yellow);
}

TEST_CASE("orange takes one second in and sixty out") {
  Feed f;
  f.at(13, 10'000);
  CHECK(f.at(11.9, 900) == Level::yellow);
  CHECK(f.at(11.9, 300) == Level::orange);
  CHECK(f.at(16.1, 59'000) == Level::orange);
  CHECK(f.at(16.1, 1500) == Level::yellow);
}

TEST_CASE("stall without want of memory is orange and never red") {
  Feed f;
  f.now.psi_some_avg10 = 1499;
  CHECK(f.run_ms(5000) == Level::green);
  CHECK(f.machine.reading().psi_warning);
  f.now.psi_some_avg10 = 1500;
  CHECK(f.run_ms(1200) == Level::orange);
  f.now.psi_full_avg10 = 9900;
  CHECK(f.run_ms(60'000) == Level::orange);
  Feed full;
  full.now.psi_full_avg10 = 300;
  CHECK(full.run_ms(1200) == Level::orange);
}

TEST_CASE("red needs two samples and a second signal") {
  Feed f;
  f.at(13, 10'000);
  f.at(9, 10'000);
  CHECK(f.glide(7.5, 60'000) == Level::orange);  // low and quiet: no signal, no red
  f.now.psi_full_avg10 = 800;
  CHECK(f.run_ms(100) == Level::red);
  Feed two;
  two.at(9, 20'000);
  two.now.psi_full_avg10 = 800;
  CHECK(two.at(7.9, 100) == Level::orange);  // the first sample
  CHECK(two.at(7.5, 100) == Level::red);
  Feed flicker;
  flicker.at(9, 20'000);
  flicker.now.psi_full_avg10 = 800;
  for (int i = 0; i < 50; ++i) {
    REQUIRE(flicker.at(7.9, 100) == Level::orange);
    REQUIRE(flicker.at(8.1, 100) == Level::orange);
  }
}

TEST_CASE("red is left after five minutes above fourteen") {
  Feed f;
  f.at(9, 10'000);
  f.now.available_bytes = gib(7);
  f.with_full_stall(300);
  REQUIRE(f.machine.reading().level == Level::red);
  f.now.psi_full_avg10 = 0;
  CHECK(f.at(14.1, 299'000) == Level::red);
  CHECK(f.at(14.1, 2000) == Level::orange);  // 14.1 is below orange's way out
  CHECK(f.at(30, 62'000) == Level::green);
}

TEST_CASE("black needs one sample and nothing else, and falls back to red") {
  Feed f;
  CHECK(f.at(3.99, 100) == Level::black);
  CHECK(f.at(8.1, 4900) == Level::black);
  CHECK(f.at(8.1, 300) == Level::red);
  Feed edge;
  CHECK(edge.at(4.0, 100) == Level::green);
}

TEST_CASE("while a model loads red begins where orange does") {
  Feed f;
  f.at(13, 10'000);
  f.now.psi_full_trigger = true;
  CHECK(f.at(11, 800) == Level::yellow);
  f.now.loading = true;
  CHECK(f.at(11, 100) == Level::yellow);  // the first sample
  CHECK(f.at(11, 100) == Level::red);
  Feed quiet;
  quiet.at(13, 10'000);
  quiet.now.loading = true;
  CHECK(quiet.glide(9, 10'000) == Level::orange);  // the signal is needed as ever
}

TEST_CASE("each second signal, just below and just above its threshold") {
  const auto signals_after = [](auto&& change, int64_t ms) {
    Feed f;
    f.run_ms(10'000);
    const int64_t begin = f.now.at_ms;
    uint32_t seen = 0;
    while (f.now.at_ms < begin + ms) {
      change(f.now, f.now.at_ms - begin);
      f.run_ms(100);
      seen |= f.machine.reading().signals;
    }
    return seen;
  };
  // 1 GiB/s for half a second.
  CHECK(signals_after([](LevelSample& s, int64_t) { s.available_bytes -= gib(0.099); }, 3000) == 0);
  CHECK(signals_after([](LevelSample& s, int64_t) { s.available_bytes -= gib(0.11); }, 700) ==
        kSignalFall);
  CHECK(signals_after([](LevelSample& s, int64_t) { s.swap_in_bytes += 4'900'000; }, 5000) == 0);
  CHECK(signals_after([](LevelSample& s, int64_t) { s.swap_in_bytes += 5'200'000; }, 2300) ==
        kSignalSwapIn);
  CHECK(signals_after([](LevelSample& s, int64_t) { s.swap_in_bytes += 5'200'000; }, 1000) == 0);
  // Nine lines a second for ever is noise; ten at once are not.
  CHECK(signals_after([](LevelSample& s, int64_t ms) { s.driver_no_memory_lines += ms % 1000 == 0 ? 9 : 0; },
                      20'000) == 0);
  CHECK(signals_after([](LevelSample& s, int64_t ms) { s.driver_no_memory_lines += ms == 500 ? 10 : 0; },
                      1000) == kSignalDriverBurst);
  CHECK(signals_after([](LevelSample& s, int64_t) { s.allocstalls += 4; }, 5000) == 0);
  CHECK(signals_after([](LevelSample& s, int64_t) { s.allocstalls += 6; }, 2000) == kSignalStallJump);
  CHECK(signals_after([](LevelSample& s, int64_t) { s.compact_fails += 6; }, 2000) == kSignalStallJump);
  CHECK(signals_after([](LevelSample& s, int64_t) { s.psi_full_avg10 = 799; }, 2000) == 0);
  CHECK(signals_after([](LevelSample& s, int64_t) { s.psi_full_avg10 = 800; }, 200) == kSignalPsiFull);
  // MemFree alone is no signal at all.
  CHECK(signals_after([](LevelSample& s, int64_t) { s.free_bytes = 0; }, 60'000) == 0);
}

TEST_CASE("what always stalls is usual, a jump above it is not") {
  Feed f;
  for (int i = 0; i < 3000; ++i) {  // five minutes of 60 a second
    f.now.allocstalls += 6;
    f.run_ms(100);
  }
  CHECK(f.machine.reading().signals == 0);
  for (int i = 0; i < 20; ++i) {
    f.now.allocstalls += 60;
    f.run_ms(100);
  }
  CHECK(f.machine.reading().signals == kSignalStallJump);
}

TEST_CASE("time that nobody watched does not count as good") {
  Feed f;
  f.at(10, 5000);
  f.now.available_bytes = gib(60);
  f.step_ms = 6000;
  CHECK(f.run_ms(120'000) == Level::orange);
  f.step_ms = 100;
  CHECK(f.run_ms(61'000) == Level::green);
}

TEST_CASE("a sample from the past changes nothing") {
  Feed f;
  f.run_ms(1000);
  LevelSample old = f.now;
  old.available_bytes = 0;
  CHECK(f.machine.update(old).level == Level::green);
  old.at_ms -= 500;
  CHECK(f.machine.update(old).level == Level::green);
}

// A naive reading of the rules, kept apart from the latches: for each level the last time it was
// entered and left, and how long the host has been well.
TEST_CASE("levels never flap faster than their way out", "[property]") {
  constexpr int64_t kLeaveMs[] = {0, 60'000, 60'000, 300'000, 5000};
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const double total = seed % 2 == 0 ? 121.7 : 24;
    LevelMachine machine(floors_for(gib(total)));
    const LevelFloors& f = machine.floors();
    const int64_t leave_above[] = {0, f.yellow_leave, f.orange_leave, f.red_leave, f.black_leave};
    LevelSample s;
    s.available_bytes = f.yellow_leave * 2;
    Level before = Level::green;
    std::vector<int64_t> well_since(kLevelCount, 0);
    for (int i = 0; i < 40'000; ++i) {
      s.at_ms += seed % 3 == 0 ? 50 : 100;
      // Long rests at a level, jumps, and noise around the floors.
      const auto dice = random() % 4000;
      if (dice == 0) s.available_bytes = static_cast<int64_t>(random() % 1000) * f.yellow_leave / 600;
      if (dice == 1) s.available_bytes = f.yellow_leave * 2;
      if (dice == 2) s.psi_full_avg10 = static_cast<int32_t>(random() % 2000);
      if (dice == 3) s.psi_full_avg10 = 0;
      if (dice == 4) s.loading = !s.loading;
      if (dice < 200) s.available_bytes += static_cast<int64_t>(random() % 2001) * kMiB - 1000 * kMiB;
      s.available_bytes = std::max<int64_t>(0, s.available_bytes);
      for (size_t level = 1; level < kLevelCount; ++level) {
        if (s.available_bytes <= leave_above[level]) well_since[level] = s.at_ms;
      }
      const Level after = machine.update(s).level;
      // Every level fallen through must have had its whole time of being well.
      for (size_t level = static_cast<size_t>(after) + 1; level <= static_cast<size_t>(before); ++level) {
        INFO("seed " << seed << " step " << i << " left " << level_name(static_cast<Level>(level)));
        REQUIRE(s.at_ms - well_since[level] >= kLeaveMs[level]);
      }
      if (s.available_bytes < f.black_enter) REQUIRE(after == Level::black);
      if (after == Level::red && before < Level::red) REQUIRE(machine.reading().signals != 0);
      before = after;
    }
  }
}

TEST_CASE("steps are engaged in the order of U14 and released in the reverse") {
  std::vector<std::string> names;
  const auto record = [&names](const ShedChanges& changes) {
    for (size_t i = 0; i < changes.count; ++i) {
      names.push_back((changes.items[i].engage ? "+" : "-") +
                      std::string(shed_step_name(changes.items[i].step)));
    }
  };
  record(shed_changes(0, shed_for(Level::yellow, false)));
  CHECK(names == std::vector<std::string>{"+optional_no_long_prefills", "+optional_freeze_growth",
                                          "+pause_background", "+optional_half_slots"});
  names.clear();
  record(shed_changes(shed_for(Level::yellow, false), shed_for(Level::red, false)));
  record(shed_changes(shed_for(Level::red, false), shed_for(Level::red, true)));
  CHECK(names == std::vector<std::string>{"+optional_one_slot", "+optional_drop_prefix_cache",
                                          "+smaller_chunks", "+advise_clean_cache",
                                          "+default_prompt_cap", "+optional_off",
                                          "+default_short_prompts", "+default_fewer_slots"});
  names.clear();
  record(shed_changes(shed_for(Level::black, true), shed_for(Level::orange, true)));
  CHECK(names == std::vector<std::string>{"-default_fewer_slots", "-default_short_prompts",
                                          "-optional_off"});
  for (size_t a = 0; a + 1 < kLevelCount; ++a) {  // a worse level never sheds less
    const ShedSet mild = shed_for(static_cast<Level>(a), false);
    CHECK((mild & shed_for(static_cast<Level>(a + 1), false)) == mild);
  }
}

TEST_CASE("slots go 16, 8, 1, 0 and chunks shrink with them") {
  const auto slots = [](Level level, int64_t n) { return shed_optional_slots(shed_for(level, false), n); };
  CHECK(slots(Level::green, 16) == 16);
  CHECK(slots(Level::yellow, 16) == 8);
  CHECK(slots(Level::yellow, 1) == 1);
  CHECK(slots(Level::orange, 16) == 1);
  CHECK(slots(Level::red, 16) == 0);
  const auto chunk = [](Level level, Role role, int64_t configured) {
    return shed_chunk_tokens(shed_for(level, false), role, configured);
  };
  CHECK(chunk(Level::green, Role::optional_model, 8192) == 8192);
  CHECK(chunk(Level::yellow, Role::optional_model, 8192) == 4096);
  CHECK(chunk(Level::yellow, Role::default_model, 8192) == 8192);
  CHECK(chunk(Level::orange, Role::optional_model, 32'768) == 2048);
  CHECK(chunk(Level::orange, Role::default_model, 8192) == 2048);
  CHECK(chunk(Level::orange, Role::optional_model, 512) == 128);  // never more than at yellow
  CHECK(chunk(Level::orange, Role::optional_model, 64) == 32);
  CHECK(chunk(Level::orange, Role::optional_model, 16) == 16);

  const ShedSet alone = shed_for(Level::red, true);
  CHECK(shed_default_slots(shed_for(Level::red, false), 8) == 8);
  CHECK(shed_default_slots(alone, 8) == 4);
  CHECK(shed_default_slots(alone, 1) == 1);
  const auto prompt = [](ShedSet set, Role role) { return shed_prompt_tokens(set, role, 262'144); };
  CHECK(prompt(0, Role::optional_model) == 0);
  CHECK(prompt(shed_for(Level::yellow, false), Role::optional_model) == 8192);
  CHECK(prompt(shed_for(Level::yellow, false), Role::default_model) == 0);
  CHECK(prompt(shed_for(Level::orange, false), Role::default_model) == 65'536);
  CHECK(prompt(alone, Role::default_model) == 8192);
  CHECK(shed_prompt_tokens(alone, Role::default_model, 4096) == 1024);
  CHECK(shed_prompt_tokens(shed_for(Level::orange, false), Role::default_model, 4096) == 2048);
  CHECK(shed_retry_after_s(Level::green) == 0);
  CHECK(shed_retry_after_s(Level::yellow) < shed_retry_after_s(Level::orange));
  CHECK(shed_retry_after_s(Level::orange) < shed_retry_after_s(Level::red));
}

TEST_CASE("a slow neighbour has one of three causes") {
  CHECK(loss_cause({.canary_percent = 92, .bandwidth_percent = 60}) == LossCause::none);
  CHECK(loss_cause({.canary_percent = 66, .bandwidth_percent = 98}) == LossCause::memory_pressure);
  CHECK(loss_cause({.canary_percent = 66, .bandwidth_percent = 67}) == LossCause::slow_state);
  CHECK(loss_cause({.canary_percent = 66, .bandwidth_percent = 98, .optional_busy = true}) ==
        LossCause::sharing);
}

}  // namespace tandem::budget
