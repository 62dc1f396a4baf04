// IncidentKeeper against a store that can fail: what is open, what is written, what survives.
#include "service/incident_keeper.h"

#include <atomic>

#include "service/store/store.h"
#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

class FlakyStore final : public IncidentStore {
 public:
  Result<void> put_incidents(const std::vector<IncidentRow>& rows) override {
    MutexLock lock(mutex_);
    ++puts;
    if (!writable) return make_error(Errc::io, "disk full");
    for (const IncidentRow& row : rows) rows_[row.id] = row;
    return {};
  }
  Result<std::vector<IncidentRow>> incidents(const IncidentFilter& filter) override {
    MutexLock lock(mutex_);
    if (!readable) return make_error(Errc::io, "broken");
    std::vector<IncidentRow> out;
    for (auto at = rows_.rbegin(); at != rows_.rend(); ++at) {
      const bool over = at->second.cleared_unix_s != 0;
      if (over && (filter.open_only || at->second.cleared_unix_s < filter.since_unix_s)) continue;
      if (filter.id != 0 && at->first != filter.id) continue;
      if (static_cast<int64_t>(out.size()) < filter.limit) out.push_back(at->second);
    }
    return out;
  }
  Result<int64_t> last_incident_id() override {
    MutexLock lock(mutex_);
    if (!readable) return make_error(Errc::io, "broken");
    return rows_.empty() ? 0 : rows_.rbegin()->first;
  }
  std::map<int64_t, IncidentRow> rows() const {
    MutexLock lock(mutex_);
    return rows_;
  }

  std::atomic<bool> writable{true};
  std::atomic<bool> readable{true};
  std::atomic<int> puts{0};

 private:
  mutable Mutex mutex_;
  std::map<int64_t, IncidentRow> rows_;
};

struct Desk {
  explicit Desk(size_t unwritten_max = 1000) : unwritten_max_(unwritten_max) { restart(); }
  void restart() {
    keeper.reset();
    keeper = std::make_unique<IncidentKeeper>(
        IncidentKeeper::Options{.models = {"qwen", "gemma"}, .unwritten_max = unwritten_max_}, store,
        metrics, clock);
    keeper->load();
  }
  double open_gauge(const char* kind, const char* model) {
    return metrics.gauge("tandem_incidents_open", "", {{"kind", kind}, {"model", model}}).value();
  }
  int64_t total(const char* kind) {
    return metrics.counter("tandem_incidents_total", "", {{"kind", kind}}).value();
  }
  int64_t lost() { return metrics.counter("tandem_incidents_lost_total", "").value(); }

  FlakyStore store;
  Metrics metrics;
  FakeClock clock;
  std::unique_ptr<IncidentKeeper> keeper;

 private:
  size_t unwritten_max_;
};

using enum IncidentKind;
using std::chrono::seconds;

TEST_CASE("an incident is open until it is cleared, and repeats count") {
  Desk desk;
  IncidentKeeper& keeper = *desk.keeper;
  const int64_t begin = desk.clock.unix_seconds();
  keeper.raise(gate_closed, "qwen", "needs 40 GiB", Json::object({{"needed", 40}}));
  CHECK(keeper.is_open(gate_closed, "qwen"));
  CHECK_FALSE(keeper.is_open(gate_closed, "gemma"));
  desk.clock.advance(seconds(10));
  keeper.raise(gate_closed, "qwen", "needs 41 GiB", Json::object({{"needed", 41}}));
  keeper.raise(gate_closed, "gemma", "needs 9 GiB");
  CHECK(keeper.open_count() == 2);
  CHECK(desk.total("gate_closed") == 2);
  CHECK(desk.open_gauge("gate_closed", "qwen") == 1.0);

  auto rows = keeper.list({}).rows;
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].model == "gemma");
  CHECK(rows[1].text == "needs 41 GiB");
  CHECK(rows[1].numbers == R"({"needed":41})");
  CHECK(rows[1].repeats == 1);
  CHECK(rows[1].raised_unix_s == begin);
  CHECK(rows[1].repeated_unix_s == begin + 10);

  desk.clock.advance(seconds(5));
  keeper.clear(gate_closed, "qwen");
  keeper.clear(gate_closed, "qwen");
  CHECK(desk.open_gauge("gate_closed", "qwen") == 0.0);
  rows = keeper.list({}).rows;
  CHECK(rows[1].cleared_unix_s == begin + 15);
  CHECK(rows[1].cleared_why == "it is over");
  CHECK(keeper.list({.open_only = true}).rows.size() == 1);

  // The next one is another incident.
  keeper.raise(gate_closed, "qwen", "again");
  CHECK(keeper.list({}).rows.size() == 3);
  CHECK(desk.total("gate_closed") == 3);
}

TEST_CASE("a model that is not configured counts as the box: the labels stay bounded") {
  Desk desk;
  desk.keeper->raise(died, "who?", "x");
  desk.keeper->raise(died, "", "y");
  CHECK(desk.keeper->open_count() == 1);
  CHECK(desk.keeper->list({}).rows.at(0).model.empty());
}

TEST_CASE("what is written is what memory has, also when it changes later") {
  Desk desk;
  desk.keeper->raise(died, "qwen", "signal 9");
  desk.keeper->step();
  REQUIRE(desk.store.rows().size() == 1);
  CHECK(desk.store.rows().begin()->second.cleared_unix_s == 0);
  const int writes = desk.store.puts;
  desk.keeper->step();
  CHECK(desk.store.puts == writes);  // there was nothing to write
  desk.keeper->raise(died, "qwen", "signal 11");
  desk.keeper->clear(died, "qwen");
  desk.keeper->step();
  const IncidentRow row = desk.store.rows().begin()->second;
  CHECK(row.text == "signal 11");
  CHECK(row.repeats == 1);
  CHECK(row.cleared_unix_s != 0);
}

TEST_CASE("a store that cannot be written loses no incident while there is room") {
  Desk desk(8);
  desk.store.writable = false;
  desk.keeper->raise(store_unwritable, "", "disk full");
  for (int i = 0; i < 5; ++i) {
    desk.keeper->raise(died, "qwen", std::to_string(i));
    desk.keeper->clear(died, "qwen");
    desk.keeper->step();
  }
  CHECK(desk.store.rows().empty());
  CHECK(desk.keeper->list({}).rows.size() == 6);
  CHECK(desk.lost() == 0);
  // Beyond that the oldest that are over go, and are counted.
  for (int i = 5; i < 10; ++i) {
    desk.keeper->raise(died, "qwen", std::to_string(i));
    desk.keeper->clear(died, "qwen");
  }
  CHECK(desk.lost() == 3);
  auto rows = desk.keeper->list({}).rows;
  REQUIRE(rows.size() == 8);
  CHECK(rows.back().kind == "store_unwritable");
  CHECK(rows[6].text == "3");

  desk.store.writable = true;
  desk.keeper->clear(store_unwritable, "");
  desk.keeper->step();
  CHECK(desk.store.rows().size() == 8);
  CHECK(desk.store.rows().rbegin()->second.text == "9");
}

TEST_CASE("a store that cannot be read leaves what memory has") {
  Desk desk;
  desk.keeper->raise(died, "qwen", "x");
  desk.store.readable = false;
  const auto list = desk.keeper->list({});
  CHECK_FALSE(list.complete);
  CHECK(list.reason == "broken");
  CHECK(list.rows.size() == 1);
  CHECK(desk.keeper->acknowledge(99).error().code == Errc::unavailable);
}

TEST_CASE("ids go on after a restart, and are never given twice") {
  Desk desk;
  desk.keeper->raise(died, "qwen", "x");
  desk.keeper->clear(died, "qwen");
  const int64_t first = desk.keeper->list({}).rows.at(0).id;
  desk.restart();
  desk.keeper->raise(died, "qwen", "y");
  CHECK(desk.keeper->list({}).rows.at(0).id == first + 1);
  desk.store.readable = false;
  desk.restart();
  desk.keeper->raise(died, "gemma", "z");
  CHECK(desk.keeper->list({}).rows.at(0).id > 1'000'000);
}

TEST_CASE("what a former process left open is taken over by who raises it, else closed") {
  Desk desk;
  desk.keeper->raise(gate_closed, "qwen", "needs 40 GiB");
  desk.keeper->raise(died, "gemma", "signal 9");
  desk.keeper->raise(disk_low, "", "1 GiB left");
  REQUIRE(desk.keeper->acknowledge(1).ok());
  desk.restart();
  CHECK(desk.keeper->open_count() == 3);
  CHECK(desk.open_gauge("gate_closed", "qwen") == 1.0);
  desk.keeper->raise(gate_closed, "qwen", "needs 39 GiB");
  desk.keeper->clear(disk_low, "");
  desk.keeper->step();
  CHECK(desk.keeper->open_count() == 2);
  desk.clock.advance(seconds(179));
  desk.keeper->step();
  CHECK(desk.keeper->open_count() == 2);
  desk.clock.advance(seconds(1));
  desk.keeper->step();
  CHECK(desk.keeper->open_count() == 1);
  const auto rows = desk.keeper->list({}).rows;
  REQUIRE(rows.size() == 3);
  CHECK(rows[2].id == 1);
  CHECK(rows[2].repeats == 1);
  CHECK(rows[2].text == "needs 39 GiB");
  CHECK(rows[2].acknowledged_unix_s != 0);
  CHECK(rows[1].cleared_why == "tandemd restarted");
  CHECK(rows[0].cleared_why == "it is over");
  CHECK(desk.open_gauge("died", "gemma") == 0.0);
  // Not a second raise in the counts of this process.
  CHECK(desk.total("gate_closed") == 1);
}

TEST_CASE("open incidents of a kind or model that is not there any more are closed at once") {
  Desk desk;
  IncidentRow row{.id = 5, .kind = "of_the_future", .text = "?", .raised_unix_s = 1};
  IncidentRow other{.id = 6, .kind = "died", .model = "llama", .text = "?", .raised_unix_s = 1};
  REQUIRE(desk.store.put_incidents({row, other}).ok());
  desk.restart();
  desk.keeper->step();
  CHECK(desk.keeper->open_count() == 0);
  CHECK(desk.store.rows()[5].cleared_why == "tandemd restarted");
  CHECK(desk.store.rows()[6].cleared_unix_s != 0);
}

TEST_CASE("acknowledging: open, over, written or not; twice is no change; unknown is said") {
  Desk desk;
  desk.keeper->raise(died, "qwen", "x");
  const auto first = desk.keeper->acknowledge(1);
  REQUIRE(first.ok());
  CHECK(first->acknowledged_unix_s == desk.clock.unix_seconds());
  desk.keeper->step();
  desk.clock.advance(seconds(9));
  CHECK(desk.keeper->acknowledge(1)->acknowledged_unix_s == first->acknowledged_unix_s);
  CHECK(desk.keeper->is_open(died, "qwen"));
  desk.keeper->raise(died, "qwen", "y");
  CHECK(desk.keeper->list({}).rows.at(0).acknowledged_unix_s == first->acknowledged_unix_s);

  desk.keeper->raise(undead, "qwen", "x");
  desk.keeper->clear(undead, "qwen");
  desk.keeper->step();
  REQUIRE(desk.keeper->acknowledge(2).ok());
  desk.keeper->step();
  CHECK(desk.store.rows()[2].acknowledged_unix_s != 0);
  CHECK(desk.store.rows()[2].cleared_unix_s != 0);
  CHECK(desk.keeper->acknowledge(3).error().code == Errc::not_found);
}

TEST_CASE("limits hold over memory and store together, newest first") {
  Desk desk;
  for (int i = 0; i < 5; ++i) {
    desk.keeper->raise(died, "qwen", std::to_string(i));
    if (i == 2) desk.keeper->step();
    desk.keeper->clear(died, "qwen");
  }
  // In the store incident 3 is open, in memory it is over.
  CHECK(desk.keeper->list({.open_only = true}).rows.empty());
  const auto rows = desk.keeper->list({.limit = 2}).rows;
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].id == 5);
  CHECK(rows[1].id == 4);
  desk.clock.advance(seconds(100));
  desk.keeper->raise(died, "gemma", "late");
  CHECK(desk.keeper->list({.since_unix_s = desk.clock.unix_seconds() - 10}).rows.size() == 1);
}

TEST_CASE("its thread writes soon, from raises of many threads, into the real store") {
  const TempDir dir;
  SystemClock clock;
  Metrics metrics;
  auto store = Store::open({.path = dir.path() + "/t.db"});
  REQUIRE(store.ok());
  {
    IncidentKeeper keeper({.models = {"qwen", "gemma"}}, **store, metrics, clock);
    keeper.load();
    keeper.start();
    std::vector<std::jthread> threads;
    for (const char* model : {"qwen", "gemma", "qwen", ""}) {
      threads.emplace_back([&keeper, model] {
        for (int i = 0; i < 200; ++i) {
          keeper.raise(engine_silent, model, "x");
          if (i % 10 == 9) keeper.clear(engine_silent, model);
        }
      });
    }
    threads.clear();
    keeper.raise(died, "qwen", "last");
    const auto end = std::chrono::steady_clock::now() + seconds(20);
    bool written = false;
    while (!written && std::chrono::steady_clock::now() < end) {
      written = (*store)->incidents({.open_only = true})->size() == 1;
    }
    CHECK(written);
  }
  const auto rows = (*store)->incidents({.limit = 1000});
  REQUIRE(rows.ok());
  CHECK(static_cast<int64_t>(rows->size()) ==
        metrics.counter("tandem_incidents_total", "", {{"kind", "engine_silent"}}).value() + 1);
  for (const IncidentRow& row : *rows) CHECK((row.cleared_unix_s == 0) == (row.kind == "died"));
}

}  // namespace
}  // namespace tandem::service
