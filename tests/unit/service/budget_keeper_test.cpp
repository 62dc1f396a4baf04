// Changing budgets: judged as the plan judges, live or by a restart, kept, undone. Over a target and a
// book that say what was done to them, and the two big models of the worked example.
#include "service/budget_keeper.h"

#include <random>
#include <string>

#include "tests/support/catch.h"
#include "tests/unit/memory_budget/plan_shapes.h"

namespace tandem::service {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

struct Book final : BudgetBook {
  Result<int64_t> append_budget(const BudgetRecord& record) override {
    if (broken) return make_error(Errc::io, "the disk is full");
    records.insert(records.begin(), record);
    records.front().id = static_cast<int64_t>(records.size());
    return records.front().id;
  }
  Result<std::vector<BudgetRecord>> budget_history() override { return records; }
  std::vector<BudgetRecord> records;  // newest first
  bool broken = false;
};

struct Target final : BudgetTarget {
  Status status(Role role) override { return {.state = states[static_cast<size_t>(role)], .pid = 10 + static_cast<int64_t>(role)}; }
  std::string heavy_work_under_way() override { return busy; }
  Result<std::string> resize(Role, const EngineBudget& budget) override {
    std::string line = "resize";
    if (budget.kv_bytes.has_value()) line += " " + std::to_string(*budget.kv_bytes / kGib);
    if (budget.slots.has_value()) line += " slots " + std::to_string(*budget.slots);
    if (budget.batch_tokens.has_value()) line += " batch " + std::to_string(*budget.batch_tokens);
    log.push_back(line);
    if (resize_error.has_value()) return *resize_error;
    return pending;
  }
  void use(Role, const ModelBudget& budget) override {
    log.push_back("use " + std::to_string(budget[BudgetField::kv] / kGib));
  }
  Result<void> restart(Role) override {
    log.emplace_back("restart");
    if (!restart_fails) return {};
    return make_error(Errc::unavailable, "model beta is failed: no memory");
  }
  std::array<ModelState, 2> states = {ModelState::ready, ModelState::ready};
  std::string busy;
  std::optional<Error> resize_error;
  std::string pending;
  bool restart_fails = false;
  bool closes = false;
  [[nodiscard]] bool closing() const override { return closes; }
  std::vector<std::string> log;
};

// The field report's pair on its box, both running: what they hold is not available any more.
struct World {
  World() {
    config.default_model.name = "alpha";
    config.default_model.file = "gemma";
    config.default_model.slots = 8;
    config.default_model.kv_bytes = 24 * kGib;
    config.default_model.context_tokens = 65'536;
    config.optional_model.emplace();
    config.optional_model->name = "beta";
    config.optional_model->file = "qwen";
    config.optional_model->kv_bytes = 8 * kGib;
    config.optional_model->context_tokens = 65'536;
    host = {.total_bytes = 1217 * kGib / 10, .available_bytes = 110 * kGib, .floor_bytes = 24 * kGib};
    make();
    // As in the report: 30 GiB are left with 8 GiB of optional KV.
    const auto facts = keeper->facts().value();
    const auto plan = budget::plan_box(describe_box(facts, describe).value()).value();
    host.available_bytes += 30 * kGib - plan.available_after;
  }
  void make() {
    const auto start = BudgetKeeper::resolve(config, book, clock).value();
    used = start.config;
    keeper = std::make_unique<BudgetKeeper>(
        BudgetKeeper::Parts{.configured = config,
                            .book = book,
                            .target = target,
                            .clock = clock,
                            .describe = describe,
                            .host = [this] { return Result<budget::HostFacts>(host); },
                            .held = [this](int64_t pid) { return pid == 10 ? held_default : held_optional; },
                            .check_change = [this] { return loss; },
                            .frozen = [this] { return frozen; }},
        start);
  }
  static Result<Json> describe(const DescribeQuestion& question) {
    if (question.file == "gemma") return tandem_tests::gemma4_26b();
    if (question.file == "qwen") return tandem_tests::qwen35_27b();
    return make_error(Errc::io, question.file + ": no such file");
  }
  Result<Json> set(std::optional<int64_t> kv, std::optional<int64_t> slots = std::nullopt, bool force = false,
                   bool dry_run = false, Role role = Role::optional_model) {
    Json wish = Json::object();
    if (kv.has_value()) wish.set("kv", *kv);
    if (slots.has_value()) wish.set("slots", *slots);
    return keeper->carry_out({.role = role,
                              .wish = read_budget_wish(wish).value(),
                              .undo = std::nullopt,
                              .force = force,
                              .dry_run = dry_run,
                              .who = "anna"});
  }
  Result<Json> undo(int64_t id = 0, bool force = false) {
    return keeper->carry_out({.role = Role::default_model, .wish = {}, .undo = id, .force = force, .dry_run = false, .who = "bert"});
  }
  int64_t kv(Role role = Role::optional_model) { return keeper->state(role).values[BudgetField::kv]; }

  Config config;
  Config used;
  FakeClock clock;
  Book book;
  Target target;
  budget::HostFacts host;
  int64_t held_default = 20 * kGib;
  int64_t held_optional = 16 * kGib;
  std::string frozen;
  std::string loss;
  std::unique_ptr<BudgetKeeper> keeper;
};

std::string text(const Json& json, const char* name) { return json.find(name)->as_string(); }
bool flag(const Json& json, const char* name) { return json.find(name)->as_bool(); }

TEST_CASE("budget set: the field report's change is refused with the exchange, and nothing happens") {
  World world;
  const Json result = world.set(24 * kGib, 16).value();
  CHECK(text(result, "text").find("optional KV 8 -> 24 GiB: host available 30 -> ") == 0);
  CHECK(text(result, "verdict") == "refused");
  CHECK_FALSE(flag(result, "allowed"));
  CHECK_FALSE(flag(result, "applied"));
  CHECK(text(result, "why") == "--force changes it all the same");
  CHECK(world.target.log.empty());
  CHECK(world.book.records.empty());
  CHECK(world.kv() == 8 * kGib);
  // Without more slots, in the report's own words.
  CHECK(text(world.set(24 * kGib).value(), "text") ==
        "optional KV 8 -> 24 GiB: host available 30 -> 14 GiB, below the performance floor of 24 GiB: "
        "refused; largest KV that fits: 14 GiB");
  CHECK(text(world.set(14 * kGib, std::nullopt, false, true).value(), "verdict") == "fits");
  CHECK(text(world.set(14 * kGib + (2 << 20), std::nullopt, false, true).value(), "verdict") == "refused");
}

TEST_CASE("budget set: --force overrides the floor and is recorded, not what the host does not have") {
  World world;
  const Json forced = world.set(24 * kGib, std::nullopt, true).value();
  CHECK(flag(forced, "applied"));
  CHECK(flag(forced, "forced"));
  CHECK(text(forced, "how") == "live");
  REQUIRE(world.book.records.size() == 1);
  CHECK(world.book.records[0].forced);
  CHECK(world.book.records[0].who == "anna");
  CHECK(world.kv() == 24 * kGib);
  const Json too_much = world.set(60 * kGib, std::nullopt, true).value();
  CHECK_FALSE(flag(too_much, "applied"));
  CHECK(text(too_much, "why").find("the host does not have the memory") == 0);
  const Json too_little = world.set(1 << 20, std::nullopt, true).value();
  CHECK_FALSE(flag(too_little, "applied"));
  CHECK(text(too_little, "why").find("could not serve") != std::string::npos);
  // A forced flag says that force was needed.
  CHECK_FALSE(flag(world.set(10 * kGib, std::nullopt, true).value(), "forced"));
}

TEST_CASE("budget set: memory given back is never refused, below the floor or not") {
  World world;
  REQUIRE(flag(world.set(24 * kGib, std::nullopt, true).value(), "applied"));
  const Json less = world.set(20 * kGib).value();
  CHECK(text(less, "verdict") == "refused");  // as the plan says
  CHECK(flag(less, "applied"));
  CHECK_FALSE(flag(less, "forced"));
  CHECK(text(less, "why") == "it takes nothing from the host: changed all the same");
}

TEST_CASE("budget set: nothing grows while the host is short of memory, forced or not; shrinking helps it") {
  World world;
  world.frozen = "the host is short of memory";
  const Json fits = world.set(10 * kGib).value();
  CHECK(text(fits, "verdict") == "fits");
  CHECK_FALSE(flag(fits, "applied"));
  CHECK(text(fits, "why") == "the host is short of memory: --force does not help");
  CHECK_FALSE(flag(world.set(10 * kGib, std::nullopt, true).value(), "applied"));
  CHECK(world.target.log.empty());
  CHECK(flag(world.set(6 * kGib).value(), "applied"));
  world.frozen.clear();
  CHECK(flag(world.set(10 * kGib).value(), "applied"));
}

TEST_CASE("budget set: a change that the default model pays for is taken back, a forced one is told of") {
  World world;
  world.loss = "the default model loses 34 %";
  const Json result = world.set(10 * kGib).value();
  CHECK(flag(result, "rolled_back"));
  CHECK_FALSE(flag(result, "applied"));
  CHECK(text(result, "why") == "taken back: the default model loses 34 %");
  CHECK(world.kv() == 8 * kGib);
  CHECK(world.book.records.size() == 2);  // the change, and what undid it
  const Json forced = world.set(24 * kGib, std::nullopt, true).value();
  CHECK(flag(forced, "applied"));
  CHECK_FALSE(flag(forced, "rolled_back"));
  CHECK(text(forced, "neighbour") == world.loss);
  CHECK(world.kv() == 24 * kGib);
}

TEST_CASE("budget set: live first; the engine has it before it is kept, and admission follows") {
  World world;
  const Json result = world.set(10 * kGib).value();
  CHECK(text(result, "how") == "live");
  CHECK(world.target.log == std::vector<std::string>{"resize 10", "use 10"});
  CHECK(world.book.records.at(0).how == "live");
  CHECK(result.find("id")->as_integer() == 1);
}

TEST_CASE("budget set: the engine is told what differs, in bytes as planned") {
  World world;
  CHECK(flag(world.set(std::nullopt, 6).value(), "applied"));
  CHECK(world.target.log.at(0) == "resize slots 6");
  // KV that is left to the slots is told as bytes, and moves with the slots.
  world.config.optional_model->kv_bytes = 0;
  world.config.optional_model->context_tokens = 16'384;
  world.make();
  world.target.log.clear();
  world.target.pending = "2 running requests need 3 GiB";
  const Json result = world.set(std::nullopt, 8).value();
  CHECK(world.target.log.at(0) == "resize 8 slots 8");  // 8 x 16,384 tokens of 64 KiB
  CHECK(text(result, "pending") == "2 running requests need 3 GiB");
}

TEST_CASE("budget set: an engine that cannot change live is restarted in order, once it is kept") {
  World world;
  world.target.resize_error = make_error(Errc::invalid_argument, "batch_tokens needs a restart");
  CHECK(text(world.set(10 * kGib).value(), "how") == "restart");
  CHECK(world.target.log == std::vector<std::string>{"resize 10", "use 10", "restart"});
  world.target.restart_fails = true;
  const Json failed = world.set(9 * kGib).value();
  CHECK(text(failed, "restart_error") == "model beta is failed: no memory");
  CHECK(flag(failed, "applied"));
}

struct VllmWorld : World {
  VllmWorld() {
    ModelConfig& model = *config.optional_model;
    model.file.clear();
    model.engine = "vllm";
    model.repository = "org/model";
    model.weights_bytes = 15 * kGib;
    host.available_bytes = 80 * kGib;
    make();
  }
};

TEST_CASE("budget set: an engine of others is restarted in order, and its plan says so first") {
  VllmWorld world;
  const Json asked = world.set(10 * kGib, std::nullopt, false, true).value();
  CHECK(text(asked, "text").find("optional KV 8 -> 10 GiB") != std::string::npos);
  CHECK(text(asked, "text").find("by an ordered restart, since vllm takes its budgets at its start only") !=
        std::string::npos);
  CHECK(world.target.log.empty());
  CHECK(text(world.set(10 * kGib).value(), "how") == "restart");
  CHECK(world.target.log == std::vector<std::string>{"use 10", "restart"});  // it is not even asked
  CHECK_FALSE(flag(world.set(60 * kGib).value(), "allowed"));
}

TEST_CASE("budget set: an engine of others that does not come up goes back to what worked") {
  VllmWorld world;
  world.target.restart_fails = true;
  const Json failed = world.set(10 * kGib).value();
  CHECK_FALSE(flag(failed, "applied"));
  CHECK(flag(failed, "rolled_back"));
  CHECK(text(failed, "why") ==
        "taken back: the model did not come back with it: model beta is failed: no memory");
  CHECK(world.target.log == std::vector<std::string>{"use 10", "restart", "use 8", "restart"});
  CHECK(world.kv() == 8 * kGib);
  CHECK(world.book.budget_history()->front().act == BudgetAct::undo);
  world.target.closes = true;  // then nobody is to blame
  CHECK_FALSE(flag(world.set(10 * kGib).value(), "rolled_back"));
}

TEST_CASE("budget set: what the engine cannot have changes nothing") {
  World world;
  world.target.resize_error = make_error(Errc::exhausted, "no memory");
  CHECK(world.set(10 * kGib).error().code == Errc::exhausted);
  CHECK(world.book.records.empty());
  CHECK(world.target.log == std::vector<std::string>{"resize 10"});
  CHECK(world.kv() == 8 * kGib);
}

TEST_CASE("budget set: what cannot be kept is taken back") {
  World world;
  world.book.broken = true;
  const auto failed = world.set(10 * kGib);
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.error().message.find("nothing was changed: the disk is full") != std::string::npos);
  CHECK(world.target.log == std::vector<std::string>{"resize 10", "resize 8"});
  CHECK(world.kv() == 8 * kGib);
}

TEST_CASE("budget set: not while a model loads; a bound of prompts moves no memory") {
  World world;
  world.target.busy = "model alpha loads";
  const auto refused = world.set(10 * kGib);
  CHECK(refused.error().code == Errc::unavailable);
  CHECK(refused.error().message.find("model alpha loads") == 0);
  CHECK(world.target.log.empty());
  const Json prompt =
      world.keeper
          ->carry_out({.role = Role::optional_model,
                       .wish = read_budget_wish(Json::object({{"prompt_tokens_max", 65'536}})).value(),
                       .undo = std::nullopt})
          .value();
  CHECK(flag(prompt, "applied"));
  CHECK(text(prompt, "text") == "optional prompt_tokens_max no limit -> 65536");
  CHECK(world.target.log == std::vector<std::string>{"use 8"});
}

TEST_CASE("budget set: a model that does not run has it at its next start") {
  World world;
  world.target.states[1] = ModelState::stopped;
  world.held_optional = 0;
  world.host.available_bytes += 16 * kGib;
  const Json result = world.set(10 * kGib).value();
  CHECK(text(result, "how") == "next_load");
  CHECK(world.target.log == std::vector<std::string>{"use 10"});
}

TEST_CASE("budget set: the default model has a largest KV of its own") {
  World world;
  const Json refused = world.set(40 * kGib, std::nullopt, false, false, Role::default_model).value();
  CHECK(text(refused, "text").find("default KV 24 -> 40 GiB: host available 30 -> 1") == 0);
  const int64_t largest = refused.find("exchange")->find("largest_that_fits")->as_integer();
  CHECK(largest > 29 * kGib);
  CHECK(largest <= 30 * kGib);
  CHECK(flag(world.set(largest, std::nullopt, false, false, Role::default_model).value(), "applied"));
}

TEST_CASE("budget set: an unreadable model file is an error that names it") {
  World world;
  world.config.optional_model->file = "gone";
  const auto failed = world.set(10 * kGib);
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.error().message.find("gone") != std::string::npos);
}

TEST_CASE("budget set: each file is described once a question, and again when the question changes") {
  World world;
  int asked = 0;
  const auto start = BudgetKeeper::resolve(world.config, world.book, world.clock).value();
  BudgetKeeper keeper({.configured = world.config,
                       .book = world.book,
                       .target = world.target,
                       .clock = world.clock,
                       .describe = [&](const DescribeQuestion& question) {
                         ++asked;
                         return World::describe(question);
                       },
                       .host = [&] { return Result<budget::HostFacts>(world.host); },
                       .held = [](int64_t) { return int64_t{0}; },
                       .frozen = [] { return std::string(); }},
                      start);
  const auto wish = [&](const char* name, int64_t value) {
    const BudgetOrder order{.role = Role::optional_model,
                            .wish = read_budget_wish(Json::object({{name, value}})).value(),
                            .undo = std::nullopt,
                            .dry_run = true};
    REQUIRE(keeper.carry_out(order).ok());
    return std::exchange(asked, 0);
  };
  CHECK(wish("kv", 9 * kGib) == 2);
  CHECK(wish("slots", 5) == 3);
  CHECK(wish("prompt_tokens_max", 100) == 0);
}

TEST_CASE("budget set: the same again changes nothing") {
  World world;
  REQUIRE(flag(world.set(10 * kGib).value(), "applied"));
  CHECK_FALSE(flag(world.set(10 * kGib).value(), "applied"));
  CHECK(world.book.records.size() == 1);
  CHECK(world.set(std::nullopt).error().code == Errc::invalid_argument);
}

TEST_CASE("budget undo: through the same gate, back to the file at last") {
  World world;
  REQUIRE(flag(world.set(10 * kGib).value(), "applied"));
  REQUIRE(flag(world.set(4 * kGib).value(), "applied"));
  // Somebody else took the memory meanwhile: what was fine then is refused now.
  world.host.available_bytes -= 15 * kGib;
  const Json refused = world.undo().value();
  CHECK_FALSE(flag(refused, "applied"));
  CHECK(world.kv() == 4 * kGib);
  world.host.available_bytes += 15 * kGib;
  CHECK(flag(world.undo().value(), "applied"));
  CHECK(world.kv() == 10 * kGib);
  CHECK(world.book.records.at(0).undoes == 2);
  CHECK(world.book.records.at(0).who == "bert");
  CHECK(flag(world.undo().value(), "applied"));
  CHECK(world.kv() == 8 * kGib);
  CHECK_FALSE(world.keeper->state(Role::optional_model).any_overridden());
  CHECK(world.undo().error().code == Errc::not_found);
  CHECK(flag(world.undo(2).value(), "applied"));  // to what held before change 2
  CHECK(world.kv() == 10 * kGib);
}

TEST_CASE("budget: what was set survives a restart of tandemd, and an edited file ends it") {
  World world;
  REQUIRE(flag(world.set(10 * kGib, 6).value(), "applied"));
  world.make();
  CHECK(world.kv() == 10 * kGib);
  CHECK(world.used.optional_model->kv_bytes == 10 * kGib);
  CHECK(world.used.optional_model->slots == 6);
  CHECK(world.used.default_model.kv_bytes == 24 * kGib);
  world.config.optional_model->kv_bytes = 5 * kGib;
  world.make();
  CHECK(world.used.optional_model->kv_bytes == 5 * kGib);
  CHECK(world.used.optional_model->slots == 6);
  REQUIRE(world.book.records.size() == 2);
  CHECK(world.book.records[0].act == BudgetAct::file);
  world.make();
  CHECK(world.book.records.size() == 2);
  // The model that an undo speaks of is not there any more.
  world.config.optional_model->name = "gamma";
  world.make();
  CHECK(world.undo(1).error().code == Errc::invalid_argument);
}

// One verdict for the same numbers, whoever asks: tandemctl plan or budget set.
TEST_CASE("budget set: plan and change agree on every number", "[property]") {
  std::mt19937_64 random(5);
  int fits = 0;
  for (int round = 0; round < 150; ++round) {
    World world;
    world.held_default = static_cast<int64_t>(random() % 40) * kGib;
    world.host.available_bytes = static_cast<int64_t>(random() % 90) * kGib;
    const auto kv = static_cast<int64_t>(random() % (30 * static_cast<uint64_t>(kGib)));
    const auto slots = 1 + static_cast<int64_t>(random() % 32);
    const Json judged = world.set(kv, slots, false, true).value();
    // As tandemctl plan has it: the facts of the box over the wire, the flags over them.
    BoxFacts facts = read_box_facts(box_facts_json(world.keeper->facts().value())).value();
    facts.models[1].settings.kv_bytes = kv;
    facts.models[1].settings.slots = slots;
    const auto plan = budget::plan_box(describe_box(facts, World::describe).value()).value();
    INFO("round " << round << ": kv " << kv << ", " << slots << " slots");
    REQUIRE(text(judged, "verdict") == (plan.fits ? "fits" : "refused"));
    REQUIRE(judged.find("exchange")->find("available_after")->as_integer() == plan.available_after);
    REQUIRE(judged.find("exchange")->find("largest_that_fits")->as_integer() == plan.largest_kv);
    REQUIRE(judged.find("plan")->dump() == budget::box_plan_to_json(plan).dump());
    fits += plan.fits ? 1 : 0;
  }
  CHECK(fits > 20);
  CHECK(fits < 130);
}

TEST_CASE("budget jobs: one at a time, and each says how it ended") {
  World world;
  CHECK(world.keeper->job(1).error().code == Errc::not_found);
  const Json wish = Json::object({{"kv", 10 * kGib}});
  const BudgetOrder order{.role = Role::optional_model,
                          .wish = read_budget_wish(wish).value(),
                          .undo = std::nullopt};
  const int64_t first = world.keeper->order(order).value();
  CHECK(world.keeper->order(order).error().code == Errc::exhausted);
  CHECK(text(world.keeper->job(first).value(), "state") == "working");
  world.keeper->start();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (text(world.keeper->job(first).value(), "state") == "working") {
    REQUIRE(std::chrono::steady_clock::now() < end);
  }
  CHECK(flag(*world.keeper->job(first)->find("result"), "applied"));
  world.config.optional_model->file = "gone";
  const int64_t second = world.keeper->order(order).value();
  while (world.keeper->job(second).ok() && text(world.keeper->job(second).value(), "state") == "working") {
    REQUIRE(std::chrono::steady_clock::now() < end);
  }
  world.keeper->stop();
}

TEST_CASE("budget show: each value with where it comes from") {
  World world;
  REQUIRE(flag(world.set(10 * kGib).value(), "applied"));
  const Json models = world.keeper->show();
  REQUIRE(models.as_array().size() == 2);
  const Json& optional = models.as_array()[1];
  CHECK(text(optional, "name") == "beta");
  const Json& kv = *optional.find("budget")->find("kv");
  CHECK(kv.find("value")->as_integer() == 10 * kGib);
  CHECK(text(kv, "from") == "override");
  CHECK(kv.find("configured")->as_integer() == 8 * kGib);
  CHECK(text(*optional.find("budget")->find("slots"), "from") == "file");
  const Json history = world.keeper->history(10).value();
  REQUIRE(history.as_array().size() == 1);
  CHECK(text(history.as_array()[0], "change") == "kv 8 GiB -> 10 GiB");
  CHECK(world.keeper->history(0)->as_array().empty());
}

}  // namespace
}  // namespace tandem::service
