// Which budget holds, what a wish makes of it, what an undo goes back to.
#include "service/budget.h"

#include <map>
#include <random>
#include <string>

#include "tests/support/catch.h"

namespace tandem::service {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

ModelConfig model_config() {
  ModelConfig config;
  config.name = "beta";
  config.file = "/models/beta.gguf";
  config.kv_bytes = 8 * kGib;
  config.slots = 4;
  config.batch_tokens = 512;
  return config;
}

BudgetState configured_state() { return {.values = budget_of(model_config()), .overridden = {}}; }

BudgetState with(BudgetState state, BudgetField field, int64_t value) {
  state.values[field] = value;
  state.overridden[static_cast<size_t>(field)] = true;
  return state;
}

BudgetRecord record(int64_t id, const BudgetState& before, const BudgetState& after,
                    BudgetAct act = BudgetAct::set, int64_t undoes = 0) {
  return {.id = id,
          .at_unix_s = 1'700'000'000 + id,
          .role = "optional",
          .model = "beta",
          .file = "/models/beta.gguf",
          .who = "anna",
          .uid = 1000,
          .act = act,
          .undoes = undoes,
          .forced = id % 2 == 0,
          .before = before,
          .after = after,
          .configured = budget_of(model_config()),
          .how = "live",
          .text = "optional KV 8 -> 24 GiB"};
}

Json json(const std::string& text) { return parse_json(text).value(); }

TEST_CASE("budget: a wish is an integer in the key's range, or the file's value") {
  const auto wish = read_budget_wish(json(R"({"kv": 25769803776, "slots": 16, "model": "x"})"));
  REQUIRE(wish.ok());
  const BudgetState after = wished_state(configured_state(), *wish, budget_of(model_config()));
  CHECK(after.values[BudgetField::kv] == 24 * kGib);
  CHECK(after.values[BudgetField::slots] == 16);
  CHECK(after.values[BudgetField::batch_tokens] == 512);
  CHECK(after.is_overridden(BudgetField::kv));
  CHECK_FALSE(after.is_overridden(BudgetField::batch_tokens));
  const auto back = read_budget_wish(json(R"({"kv": null})"));
  const BudgetState there = wished_state(after, *back, budget_of(model_config()));
  CHECK(there.values[BudgetField::kv] == 8 * kGib);
  CHECK_FALSE(there.is_overridden(BudgetField::kv));
  CHECK(there.is_overridden(BudgetField::slots));
  CHECK(read_budget_wish(json("{}"))->empty());
  for (const char* bad : {R"({"slots": 0})", R"({"slots": 1025})", R"({"slots": -1})", R"({"slots": "4"})",
                          R"({"slots": 1.5})", R"({"kv": -1})", R"({"kv": true})",
                          R"({"batch_tokens": 65537})", R"({"prompt_tokens_max": 16777217})"}) {
    INFO(bad);
    const auto refused = read_budget_wish(json(bad));
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == Errc::invalid_argument);
    CHECK(json(bad).find(refused.error().path) != nullptr);
  }
  CHECK(read_budget_wish(json(R"({"slots": 1025})")).error().message ==
        "slots is 1025, allowed are 1 to 1024");
}

TEST_CASE("budget: what was set holds over the file after a restart") {
  const BudgetState set = with(configured_state(), BudgetField::kv, 24 * kGib);
  const auto resolved = resolve_budget("optional", model_config(), record(7, configured_state(), set));
  CHECK(resolved.state == set);
  CHECK_FALSE(resolved.ended.has_value());
  CHECK(resolve_budget("optional", model_config(), std::nullopt).state == configured_state());
}

TEST_CASE("budget: a file that is edited afterwards has the last word, key by key") {
  BudgetState set = with(configured_state(), BudgetField::kv, 24 * kGib);
  set = with(set, BudgetField::slots, 16);
  ModelConfig edited = model_config();
  edited.kv_bytes = 12 * kGib;
  edited.batch_tokens = 1024;  // was never set: no override ends by it
  const auto resolved = resolve_budget("optional", edited, record(7, configured_state(), set));
  CHECK(resolved.state.values[BudgetField::kv] == 12 * kGib);
  CHECK_FALSE(resolved.state.is_overridden(BudgetField::kv));
  CHECK(resolved.state.values[BudgetField::slots] == 16);
  CHECK(resolved.state.is_overridden(BudgetField::slots));
  CHECK(resolved.state.values[BudgetField::batch_tokens] == 1024);
  REQUIRE(resolved.ended.has_value());
  CHECK(resolved.ended->act == BudgetAct::file);
  CHECK(resolved.ended->before == set);
  CHECK(resolved.ended->after == resolved.state);
  CHECK(resolved.ended->text == "the configuration file was edited after change 7");
  // The next start finds that record: nothing more ends, and the file's old value does not bring the
  // override back.
  BudgetRecord ended = *resolved.ended;
  ended.id = 8;
  CHECK_FALSE(resolve_budget("optional", edited, ended).ended.has_value());
  const auto back = resolve_budget("optional", model_config(), ended);
  CHECK(back.state.values[BudgetField::kv] == 8 * kGib);
}

TEST_CASE("budget: another model in the role ends all overrides") {
  const BudgetState set = with(configured_state(), BudgetField::kv, 24 * kGib);
  for (const bool by_name : {true, false}) {
    ModelConfig other = model_config();
    (by_name ? other.name : other.file) = "/models/gamma.gguf";
    const auto resolved = resolve_budget("optional", other, record(7, configured_state(), set));
    CHECK(resolved.state.values == budget_of(other));
    CHECK_FALSE(resolved.state.any_overridden());
    REQUIRE(resolved.ended.has_value());
    CHECK(resolved.ended->text.find("another model") != std::string::npos);
  }
}

TEST_CASE("budget: undo after undo goes further back, and an undo can be undone") {
  const BudgetState a = configured_state();
  const BudgetState b = with(a, BudgetField::kv, 10 * kGib);
  const BudgetState c = with(b, BudgetField::slots, 6);
  std::vector<BudgetRecord> history = {record(2, b, c), record(1, a, b)};  // newest first
  CHECK(find_undoable(history, 0)->id == 2);
  history.insert(history.begin(), record(3, c, b, BudgetAct::undo, 2));
  CHECK(find_undoable(history, 0)->id == 1);
  history.insert(history.begin(), record(4, b, a, BudgetAct::undo, 1));
  CHECK(find_undoable(history, 0).error().code == Errc::not_found);
  // By its number an undo is taken back: what it had undone is there again, and may be undone again.
  CHECK(find_undoable(history, 4)->before == b);
  history.insert(history.begin(), record(5, a, b, BudgetAct::undo, 4));
  CHECK(find_undoable(history, 0)->id == 1);
  CHECK(find_undoable(history, 6).error().code == Errc::not_found);
  CHECK(find_undoable({}, 0).error().code == Errc::not_found);
}

TEST_CASE("budget: an undo of an old change takes the later ones of its role back too") {
  const BudgetState a = configured_state();
  std::vector<BudgetRecord> history;
  const auto add = [&](BudgetRecord each) { history.insert(history.begin(), std::move(each)); };
  add(record(1, a, with(a, BudgetField::kv, 10 * kGib)));
  BudgetRecord other = record(2, a, with(a, BudgetField::slots, 9));
  other.role = "default";
  add(other);
  add(record(3, with(a, BudgetField::kv, 10 * kGib), with(a, BudgetField::kv, 12 * kGib)));
  add(record(4, with(a, BudgetField::kv, 12 * kGib), a, BudgetAct::undo, 1));
  CHECK(find_undoable(history, 0)->id == 2);  // of the other role
}

TEST_CASE("budget: what came from the file comes from the file as it is now") {
  const BudgetState b = with(configured_state(), BudgetField::kv, 10 * kGib);
  ModelBudget now = budget_of(model_config());
  now[BudgetField::slots] = 9;
  const BudgetState back = undone_state(record(2, b, with(b, BudgetField::slots, 6)), now);
  CHECK(back.values[BudgetField::kv] == 10 * kGib);
  CHECK(back.values[BudgetField::slots] == 9);
  CHECK_FALSE(back.is_overridden(BudgetField::slots));
}

// Walks random histories: what is recorded resolves to what held, and undo by undo everything that was
// set goes back to the file.
TEST_CASE("budget: histories resolve to what held, and undo ends at the file", "[property]") {
  std::mt19937_64 random(20261130);
  for (int round = 0; round < 200; ++round) {
    std::vector<BudgetRecord> history;
    BudgetState state = configured_state();
    const auto keep = [&](const BudgetState& after, BudgetAct act, int64_t undoes) {
      history.insert(history.begin(),
                     record(static_cast<int64_t>(history.size()) + 1, state, after, act, undoes));
      state = after;
    };
    for (int step = 0; step < 12; ++step) {
      if (random() % 4 == 0 && !history.empty()) {
        const int64_t id = random() % 2 == 0 ? 0 : 1 + static_cast<int64_t>(random() % history.size());
        const auto undone = find_undoable(history, id);
        if (!undone.ok()) continue;
        keep(undone_state(*undone, budget_of(model_config())), BudgetAct::undo, undone->id);
      } else {
        const auto field = kBudgetFields[random() % kBudgetFieldCount];
        keep(with(state, field, 1 + static_cast<int64_t>(random() % 1000)), BudgetAct::set, 0);
      }
      INFO("round " << round << " step " << step);
      REQUIRE(resolve_budget("optional", model_config(), history.front()).state == state);
      REQUIRE(read_budget_record(parse_json(budget_record_json(history.front()).dump()).value())->after == state);
    }
    int undos = 0;
    for (auto next = find_undoable(history, 0); next.ok(); next = find_undoable(history, 0)) {
      REQUIRE(++undos <= 12);
      keep(undone_state(*next, budget_of(model_config())), BudgetAct::undo, next->id);
    }
    REQUIRE(state == configured_state());
  }
}

TEST_CASE("budget: a record survives its JSON, and broken ones are errors that name the part") {
  const BudgetRecord first =
      record(3, configured_state(), with(configured_state(), BudgetField::kv, kGib), BudgetAct::undo, 2);
  const std::string text = budget_record_json(first).dump();
  const BudgetRecord back = read_budget_record(json(text)).value();
  CHECK(budget_record_json(back).dump() == text);
  CHECK(back.undoes == 2);
  CHECK(back.act == BudgetAct::undo);
  for (const char* name : {"id", "at", "role", "model", "file", "who", "uid", "act", "forced", "before", "after",
                           "configured", "how", "text"}) {
    Json broken = Json::object();
    const Json whole = json(text);
    for (const auto& [key, value] : whole.as_object()) {
      if (key != name) broken.set(key, value);
    }
    INFO(name);
    const auto read = read_budget_record(broken);
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().path == name);
  }
  Json wild = json(text);
  wild.set("after", json(R"({"kv":{"value":1,"override":true},"slots":{"value":0,"override":true},
                             "batch_tokens":{"value":1,"override":true},
                             "prompt_tokens_max":{"value":0,"override":false}})"));
  CHECK(read_budget_record(wild).error().code == Errc::invalid_argument);  // slots 0
}

TEST_CASE("budget: texts") {
  ModelBudget after = budget_of(model_config());
  after[BudgetField::kv] = 24 * kGib;
  after[BudgetField::prompt_tokens_max] = 65'536;
  CHECK(budget_change_text(budget_of(model_config()), after) ==
        "kv 8 GiB -> 24 GiB, prompt_tokens_max no limit -> 65536");
  CHECK(budget_change_text(after, after).empty());
  CHECK(budget_value_text(BudgetField::kv, 0) == "as needed");
}

}  // namespace
}  // namespace tandem::service
