// Incidents, budget history and learned numbers in the store, and the kinds of incidents.
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include "service/incident_kinds.h"
#include "service/store/database.h"
#include "service/store/migrations.h"
#include "service/store/store.h"
#include "tests/support/incident_recorder.h"
#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

std::unique_ptr<Store> open_store(const TempDir& dir, int64_t incident_rows = 10'000) {
  auto store = Store::open({.path = dir.path() + "/t.db", .incident_rows = incident_rows});
  INFO((store.ok() ? "" : store.error().message));
  REQUIRE(store.ok());
  return std::move(*store);
}

IncidentRow incident(int64_t id, int64_t raised, int64_t cleared = 0) {
  return {.id = id,
          .kind = "gate_closed",
          .model = "qwen",
          .text = "needs 40 GiB, 30 GiB are available",
          .numbers = R"({"needed":42949672960})",
          .raised_unix_s = raised,
          .repeated_unix_s = raised + 5,
          .repeats = 2,
          .cleared_unix_s = cleared,
          .cleared_why = cleared == 0 ? "" : "fits",
          .acknowledged_unix_s = raised + 1};
}

std::vector<int64_t> ids(const Result<std::vector<IncidentRow>>& rows) {
  REQUIRE(rows.ok());
  std::vector<int64_t> out;
  for (const IncidentRow& row : *rows) out.push_back(row.id);
  return out;
}

TEST_CASE("an incident is stored whole, and replaced by its next state") {
  const TempDir dir;
  {
    const auto store = open_store(dir);
    CHECK(store->last_incident_id().value() == 0);
    REQUIRE(store->put_incidents({incident(7, 1000)}).ok());
    CHECK(store->incidents({})->at(0) == incident(7, 1000));
    REQUIRE(store->put_incidents({incident(7, 1000, 1200), incident(8, 1300)}).ok());
  }
  const auto store = open_store(dir);
  CHECK(store->last_incident_id().value() == 8);
  const auto rows = store->incidents({});
  CHECK(ids(rows) == std::vector<int64_t>{8, 7});
  CHECK(rows->at(1) == incident(7, 1000, 1200));
}

TEST_CASE("incidents: only the open ones, only those of a time, only so many") {
  const TempDir dir;
  const auto store = open_store(dir);
  REQUIRE(store->put_incidents({incident(1, 100, 150), incident(2, 200), incident(3, 300, 350),
                                incident(4, 400, 450)})
              .ok());
  CHECK(ids(store->incidents({.open_only = true})) == std::vector<int64_t>{2});
  // Open at that time or raised later.
  CHECK(ids(store->incidents({.since_unix_s = 350})) == std::vector<int64_t>{4, 3, 2});
  CHECK(ids(store->incidents({.since_unix_s = 351})) == std::vector<int64_t>{4, 2});
  CHECK(ids(store->incidents({.limit = 2})) == std::vector<int64_t>{4, 3});
  CHECK(ids(store->incidents({.limit = 0})).empty());
  CHECK(ids(store->incidents({.limit = -1})).empty());
}

TEST_CASE("old incidents go when there are too many, open ones stay") {
  const TempDir dir;
  const auto store = open_store(dir, 10);
  REQUIRE(store->put_incidents({incident(1, 100)}).ok());
  for (int64_t id = 2; id <= 40; ++id) {
    REQUIRE(store->put_incidents({incident(id, id * 100, id * 100 + 1)}).ok());
  }
  const std::vector<int64_t> kept = ids(store->incidents({.limit = 1000}));
  CHECK(kept.size() == 11);
  CHECK(kept.front() == 40);
  CHECK(kept[9] == 31);
  CHECK(kept.back() == 1);
}

BudgetChange change(const std::string& model, const std::string& before, const std::string& after) {
  return {.model = model,
          .before = before,
          .after = after,
          .admin_uid = 1000,
          .changed_unix_s = 1'700'000'000,
          .forced = true};
}

TEST_CASE("budget history: newest first, of one model or of all; a change is taken back once") {
  const TempDir dir;
  int64_t first = 0;
  {
    const auto store = open_store(dir);
    first = store->add_budget_change(change("qwen", R"({"kv":8})", R"({"kv":12})")).value();
    CHECK(first > 0);
    const int64_t other = store->add_budget_change(change("gemma", "{}", R"({"slots":8})")).value();
    CHECK(other == first + 1);
    auto wrong = store->add_budget_change(change("gemma", "{}", "{}"), first);
    REQUIRE_FALSE(wrong.ok());
    CHECK(wrong.error().code == Errc::not_found);
    CHECK(store->budget_history("", 100)->size() == 2);  // nothing of it was kept
    const int64_t undo =
        store->add_budget_change(change("qwen", R"({"kv":12})", R"({"kv":8})"), first).value();
    CHECK(undo == first + 2);
    wrong = store->add_budget_change(change("qwen", "{}", "{}"), first);
    REQUIRE_FALSE(wrong.ok());
    CHECK(wrong.error().code == Errc::invalid_argument);
    CHECK(store->health().writable);  // the request was at fault, not the file
  }
  const auto store = open_store(dir);
  auto expected = change("qwen", R"({"kv":8})", R"({"kv":12})");
  expected.id = first;
  expected.undone_by = first + 2;
  const auto history = store->budget_history("qwen", 100);
  REQUIRE(history->size() == 2);
  CHECK(history->at(0).after == R"({"kv":8})");
  CHECK(history->at(0).undone_by == 0);
  CHECK(history->at(1) == expected);
  CHECK(store->budget_history("", 100)->size() == 3);
  CHECK(store->budget_history("", 1)->size() == 1);
  CHECK(store->budget_history("none", 100)->empty());
}

LearnedRow learned(const std::string& weights, const std::string& driver, int64_t updated) {
  return {.key = {.weights = weights,
                  .engine_version = "0.2",
                  .flags_hash = "f00",
                  .kernel = "6.11.0-1016",
                  .driver = driver},
          .numbers = {.load_peak_bytes = 30,
                      .post_load_peak_bytes = 31,
                      .steady_bytes = 29,
                      .kv_bytes = 8,
                      .host_plateau_bytes = 2,
                      .prefill_ns_per_token = 77,
                      .runs = 3,
                      .updated_unix_s = updated}};
}

TEST_CASE("learned numbers are found by their whole key, and by the weights, latest first") {
  const TempDir dir;
  const LearnedRow first = learned("w1", "580.95", 100);
  const LearnedRow other_driver = learned("w1", "580.126", 200);
  {
    const auto store = open_store(dir);
    REQUIRE(store->put_learned(first));
    REQUIRE(store->put_learned(other_driver));
    REQUIRE(store->put_learned(learned("w2", "580.95", 300)));
    REQUIRE(store->flush().ok());
  }
  const auto store = open_store(dir);
  CHECK(store->learned(first.key)->value() == first.numbers);
  for (std::string LearnedKey::* const field :
       {&LearnedKey::weights, &LearnedKey::engine_version, &LearnedKey::flags_hash,
        &LearnedKey::kernel, &LearnedKey::driver}) {
    LearnedKey near = first.key;
    near.*field += "x";
    CHECK_FALSE(store->learned(near)->has_value());
  }
  CHECK(store->learned_of_weights("w1").value() == std::vector<LearnedRow>{other_driver, first});
  CHECK(store->learned_of_weights("w3")->empty());

  LearnedRow again = first;
  again.numbers.steady_bytes = 28;
  again.numbers.runs = 4;
  REQUIRE(store->put_learned(again));
  CHECK(store->learned(first.key)->value() == again.numbers);
  CHECK(store->learned_of_weights("w1")->size() == 2);
}

TEST_CASE("the learned numbers that are oldest go when there are too many") {
  const TempDir dir;
  const auto store = open_store(dir);
  for (int i = 0; i < 1010; ++i) {
    REQUIRE(store->put_learned(learned("w" + std::to_string(i), "", i)));
    if (i % 200 == 0) REQUIRE(store->flush().ok());
  }
  CHECK(store->learned_of_weights("w9")->empty());
  CHECK(store->learned_of_weights("w10")->size() == 1);
  CHECK(store->learned_of_weights("w1009")->size() == 1);
}

TEST_CASE("a database of the last release is brought up to date without losing a row") {
  const TempDir dir;
  const std::string path = dir.path() + "/t.db";
  {
    const auto store = open_store(dir);
    REQUIRE(store->add_key({.id = "tdm_1", .hash = "h", .label = "l", .scopes = {.inference = true}}).ok());
  }
  {
    auto database = Database::open(path);
    REQUIRE(database.ok());
    for (const char* sql : {"DROP TABLE incidents", "DROP TABLE budget_history",
                            "DROP TABLE learned_numbers", "DROP TABLE canary", "PRAGMA user_version=3"}) {
      REQUIRE(database->execute(sql).ok());
    }
  }
  const auto store = open_store(dir);
  CHECK(store->keys()->size() == 1);
  REQUIRE(store->put_incidents({incident(1, 100)}).ok());
  CHECK(store->incidents({})->size() == 1);
}

TEST_CASE("every kind of incident has a name of its own, a meaning and a next step") {
  std::set<std::string_view> names;
  for (const IncidentFacts& facts : incident_table()) {
    CHECK(names.insert(facts.name).second);
    CHECK(incident_kind(facts.name) == facts.kind);
    CHECK(incident_kind_name(facts.kind) == facts.name);
    CHECK(facts.meaning.ends_with("."));
    CHECK(facts.next.ends_with("."));
  }
  CHECK_FALSE(incident_kind("no_such_kind").has_value());
}

TEST_CASE("docs/incidents.md has the row of every kind") {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  std::ifstream file(std::string(root == nullptr ? "." : root) + "/docs/incidents.md");
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  for (const IncidentFacts& facts : incident_table()) {
    const std::string row = "| `" + std::string(facts.name) + "` | " + severity_name(facts.severity) +
                            " | " + std::string(facts.meaning) + " | " + std::string(facts.next) + " |";
    INFO(row);
    CHECK(page.find(row) != std::string::npos);
  }
}

TEST_CASE("the recorder of the tests knows what is open") {
  IncidentRecorder recorder;
  IncidentSink& sink = recorder;
  sink.raise(IncidentKind::died, "qwen", "signal 9", Json::object({{"signal", 9}}));
  CHECK(recorder.open(IncidentKind::died, "qwen"));
  CHECK_FALSE(recorder.open(IncidentKind::died, "gemma"));
  sink.clear(IncidentKind::died, "qwen");
  CHECK_FALSE(recorder.open(IncidentKind::died, "qwen"));
  CHECK(recorder.events().at(0).numbers.find("signal")->as_integer() == 9);
}

TEST_CASE("measures of the canary are of weights and a version, newest first") {
  const TempDir dir;
  const CanaryRow first{.weights = "w", .version = "1", .cell = "alone", .us_per_token = 100, .measured_unix_s = 5};
  const CanaryRow second{.weights = "w", .version = "1", .cell = "idle", .us_per_token = 110, .measured_unix_s = 6};
  {
    const auto store = open_store(dir);
    REQUIRE(store->add_canary(first).ok());
    REQUIRE(store->add_canary(second).ok());
    REQUIRE(store->add_canary({.weights = "w", .version = "2", .cell = "idle"}).ok());
  }
  const auto store = open_store(dir);
  const auto rows = store->canary_history("w", "1", 10);
  REQUIRE(rows.ok());
  CHECK(*rows == std::vector<CanaryRow>{second, first});
  CHECK(store->canary_history("w", "1", 1)->size() == 1);
  CHECK(store->canary_history("x", "1", 10)->empty());
}

}  // namespace
}  // namespace tandem::service
