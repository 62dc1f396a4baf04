// What is learned of a model's memory from its runs, how runs are combined, and what a start makes of it.
#include "service/learned_memory.h"

#include "service/model_figures.h"
#include "service/store/store.h"
#include "tests/unit/memory_budget/plan_shapes.h"
#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

RunLook look(int64_t at_s, bool ready, int64_t held_mib, int64_t peak_mib) {
  return {.at_ms = at_s * 1000,
          .ready = ready,
          .held_bytes = held_mib * kMiB,
          .peak_bytes = peak_mib * kMiB,
          .anonymous_bytes = held_mib * kMiB / 2,
          .kv_bytes = ready ? 64 * kMiB : 0};
}

TEST_CASE("a run gives its numbers a minute after it is ready, and again when they have grown") {
  RunMeter meter;
  meter.look(look(1, false, 100, 130));
  meter.look(look(2, false, 300, 420));
  meter.look(look(3, true, 310, 420));
  CHECK_FALSE(meter.take_news());
  meter.look(look(40, true, 330, 500));
  CHECK_FALSE(meter.take_news());
  meter.look(look(63, true, 320, 500));
  REQUIRE(meter.take_news());
  CHECK(meter.numbers().load_peak_bytes == 420 * kMiB);
  CHECK(meter.numbers().post_load_peak_bytes == 500 * kMiB);
  CHECK(meter.numbers().steady_bytes == 320 * kMiB);
  CHECK(meter.numbers().host_plateau_bytes == 165 * kMiB);
  CHECK(meter.numbers().kv_bytes == 64 * kMiB);
  CHECK(meter.numbers().prefill_ns_per_token == 0);
  meter.look(look(70, true, 320, 500));
  CHECK_FALSE(meter.take_news());
  // A prefill of 1,000 tokens in 50 ms, nearly alone.
  RunLook busy = look(80, true, 320, 500);
  busy.prompt_tokens = 1000;
  busy.completion_tokens = 2;
  busy.step_us = 50'000;
  meter.look(busy);
  REQUIRE(meter.take_news());
  CHECK(meter.numbers().prefill_ns_per_token == 50'000);
  // Mostly answers: says nothing about prefill.
  busy.at_ms += 10'000;
  busy.prompt_tokens += 300;
  busy.completion_tokens += 300;
  busy.step_us += 900'000;
  meter.look(busy);
  CHECK_FALSE(meter.take_news());
  // The next run.
  meter.look(look(100, false, 10, 20));
  CHECK(meter.numbers().load_peak_bytes == 20 * kMiB);
  CHECK(meter.numbers().post_load_peak_bytes == 0);
}

TEST_CASE("peaks are the largest seen and give way slowly, the rest follows the latest run") {
  const LearnedNumbers first{.load_peak_bytes = 800, .post_load_peak_bytes = 400, .steady_bytes = 300,
                             .kv_bytes = 64, .host_plateau_bytes = 160, .prefill_ns_per_token = 9, .runs = 3};
  const LearnedNumbers lower{.load_peak_bytes = 400, .post_load_peak_bytes = 500, .steady_bytes = 200,
                             .host_plateau_bytes = 80};
  const LearnedNumbers both = combine(first, lower);
  CHECK(both.load_peak_bytes == 750);
  CHECK(both.post_load_peak_bytes == 500);
  CHECK(both.steady_bytes == 200);
  CHECK(both.kv_bytes == 64);
  CHECK(both.host_plateau_bytes == 150);
  CHECK(both.prefill_ns_per_token == 9);
  CHECK(both.runs == 4);
  // An adopted engine's load was not seen: nothing is forgotten for that.
  CHECK(combine(first, {.steady_bytes = 1}).load_peak_bytes == 800);
}

TEST_CASE("what was learned admits the next start, and outlives tandemd; smaller budgets are known good") {
  TempDir dir;
  FakeClock clock;
  ModelConfig model;
  model.file = dir.path() + "/weights";
  std::ofstream(model.file) << "weights";
  model.kv_bytes = 100;
  const budget::Profile planned{.name = "planned", .peak_bytes = 5000, .steady_bytes = 4000};
  ModelConfig smaller = model;
  smaller.kv_bytes = 50;
  {
    auto store = Store::open({.path = dir.path() + "/db"});
    REQUIRE(store.ok());
    LearnedBook book(**store, clock);
    book.open(model);
    CHECK(book.profile(model, planned).peak_bytes == 5000);
    book.begin_run(model);
    book.learn(model, {.load_peak_bytes = 900, .post_load_peak_bytes = 950, .steady_bytes = 700, .kv_bytes = 100});
    book.learn(model, {.load_peak_bytes = 900, .post_load_peak_bytes = 980, .steady_bytes = 710, .kv_bytes = 100});
    book.begin_run(smaller);
    book.learn(smaller, {.load_peak_bytes = 600, .post_load_peak_bytes = 500, .steady_bytes = 400, .kv_bytes = 50});
    REQUIRE((*store)->flush().ok());
  }
  auto store = Store::open({.path = dir.path() + "/db"});
  REQUIRE(store.ok());
  LearnedBook book(**store, clock);
  book.open(model);
  const budget::Profile known = book.profile(model, planned);
  CHECK(known.name == "planned");
  CHECK(known.peak_bytes == 980);
  CHECK(known.steady_bytes == 710);
  const auto good = book.known_good(model, known);
  REQUIRE(good.has_value());
  CHECK(good->kv_bytes == 50);
  CHECK(good->slots == model.slots);
  CHECK(good->peak_bytes == 600);
  CHECK_FALSE(book.known_good(smaller, book.profile(smaller, planned)).has_value());
  // Twice news of one run are one run.
  const auto rows = (*store)->learned_of_weights(weights_identity(model.file));
  REQUIRE(rows.ok());
  REQUIRE(rows->size() == 2);
  for (const LearnedRow& row : *rows) CHECK(row.numbers.runs == 1);
  // Other weights, nothing known.
  std::ofstream(model.file) << "other weights";
  LearnedBook fresh(**store, clock);
  fresh.open(model);
  CHECK(fresh.profile(model, planned).peak_bytes == 5000);
}

TEST_CASE("a start that nobody measured yet needs what the plan says") {
  TempDir dir;
  ModelConfig model;
  model.name = "gemma";
  model.file = dir.path() + "/weights";
  std::ofstream(model.file) << "weights";
  model.slots = 8;
  model.context_tokens = 65'536;
  model.kv_bytes = 24 * budget::kGiB;
  model.batch_tokens = 512;
  DescribeQuestion asked;
  const auto describe = [&](const DescribeQuestion& question) -> Result<Json> {
    asked = question;
    return tandem_tests::gemma4_26b();
  };
  const budget::Profile planned = start_profile(model, "engine", describe);
  CHECK(planned.steady_bytes == 40'343'224'960);  // the worked example of docs/memory.md
  CHECK(planned.peak_bytes == planned.steady_bytes);
  CHECK(planned.name == "8 slots, KV 24 GiB");
  CHECK(planned.slots == 0);  // as configured
  CHECK(asked.engine == "engine");
  CHECK(asked.file == model.file);
  CHECK(asked.slots == 8);
  // A file that cannot be described is no reason not to start it.
  const auto refuse = [](const DescribeQuestion&) -> Result<Json> { return make_error(Errc::io, "no such file"); };
  const budget::Profile guess = estimated_profile(model);
  CHECK(start_profile(model, "engine", refuse).peak_bytes == guess.peak_bytes);
  CHECK(start_profile(model, "engine", nullptr).peak_bytes == guess.peak_bytes);
  CHECK(guess.peak_bytes == 7 + 24 * budget::kGiB + budget::kHostBytes);
}

TEST_CASE("the supervisor starts models with the plan's figures, also after a change of their budgets") {
  World world;
  int asked = 0;
  world.describe = [&](const DescribeQuestion& question) -> Result<Json> {
    ++asked;
    CHECK(question.slots == (asked <= 2 ? world.config.default_model.slots : 9));
    return tandem_tests::gemma4_26b();
  };
  world.host.available_bytes = 30 * budget::kGiB;  // no room beside the floor of 24 GiB
  world.config.default_model.kv_bytes = 8 * budget::kGiB;
  world.begin();
  REQUIRE(world.until([&] { return world.state() == ModelState::waiting; }));
  CHECK(world.status().message.find("(peak 21.") != std::string::npos);
  ModelBudget budget = budget_of(world.config.default_model);
  budget[BudgetField::slots] = 9;
  budget[BudgetField::kv] = 4 * budget::kGiB;
  world.supervisor->use_budget(Role::default_model, budget);
  CHECK(asked == 3);
  world.clock.advance(std::chrono::seconds(11));
  INFO(world.status().message);
  CHECK(world.until([&] { return world.status().message.find("(peak 17.") != std::string::npos; }));
}

TEST_CASE("the supervisor measures a run and falls back to what is known good at a closed gate") {
  TempDir dir;
  auto store = Store::open({.path = dir.path() + "/db"});
  REQUIRE(store.ok());
  World world;
  LearnedBook book(**store, world.clock);
  world.learned = &book;
  world.config.default_model.kv_bytes = 64 * kMiB;
  ModelConfig smaller = world.config.default_model;
  smaller.kv_bytes = 16 * kMiB;
  book.learn(smaller, {.load_peak_bytes = 100, .post_load_peak_bytes = 100, .steady_bytes = 90,
                       .kv_bytes = 16 * kMiB});
  world.host.memory = {.members = 1, .anonymous_bytes = 30 * kMiB, .file_bytes = 10 * kMiB,
                       .peak_bytes = 50 * kMiB};
  world.host.available_bytes = 24 * budget::kGiB + kMiB;  // room for the small one only
  world.begin();
  REQUIRE(world.until([&] { return world.state() == ModelState::waiting; }));
  world.clock.advance(std::chrono::minutes(5) + std::chrono::seconds(1));
  REQUIRE(world.until([&] { return world.incidents.open.contains("gate_fallback alpha"); }));
  world.clock.advance(std::chrono::seconds(10));
  REQUIRE(world.until_ready(0));
  std::ifstream command("/proc/" + std::to_string(world.status().pid) + "/cmdline");
  const std::string arguments{std::istreambuf_iterator<char>(command), {}};
  CHECK(arguments.find(std::string("--kv") + '\0' + std::to_string(16 * kMiB)) != std::string::npos);
  // tandemd ends and lets it live: the next one knows with what it runs, and leaves it so.
  const int64_t pid = world.status().pid;
  world.supervisor->begin_stop(true);
  REQUIRE(world.until([&] { return world.supervisor->stopped(); }));
  world.supervisor.reset();
  world.incidents.open.clear();
  world.begin();
  REQUIRE(world.until_ready(0));
  CHECK(world.status().pid == pid);
  CHECK(world.status().adopted);
  CHECK(world.incidents.open["gate_fallback alpha"].ends_with("found running with it"));
  const auto stats = world.tenant().stats(soon());
  REQUIRE(stats.ok());
  CHECK(stats->kv_bytes_target == 16 * kMiB);
  // Room for all of it: the next start takes it, and its run is measured.
  world.host.available_bytes = 100 * budget::kGiB;
  REQUIRE(world.supervisor->post(Role::default_model, ModelCommand::restart).ok());
  REQUIRE(world.until([&] { return world.state() != ModelState::ready; }));
  REQUIRE(world.until_ready(0));
  world.clock.advance(std::chrono::seconds(2));
  world.supervisor->poll_once(std::chrono::milliseconds(0));  // the look that sees it ready
  world.clock.advance(std::chrono::seconds(61));
  const budget::Profile nothing;
  REQUIRE(world.until([&] {
    return book.profile(world.config.default_model, nothing).steady_bytes == 40 * kMiB;
  }));
  CHECK(book.profile(world.config.default_model, nothing).peak_bytes == 50 * kMiB);
}

}  // namespace
}  // namespace tandem::service
