// What of the looks at the store and at an engine is an incident.
#include "service/incident_policies.h"

#include "tests/support/catch.h"
#include "tests/support/incident_recorder.h"

namespace tandem::service {
namespace {

using enum IncidentKind;
using std::chrono::seconds;

constexpr int64_t kMiB = int64_t{1} << 20;

size_t raises(const IncidentRecorder& recorder, IncidentKind kind) {
  const auto events = recorder.events();
  return static_cast<size_t>(std::count_if(events.begin(), events.end(), [&](const auto& event) {
    return event.raised && event.kind == kind;
  }));
}

TEST_CASE("a store that cannot be written is raised at once, cleared when it holds for 5 s") {
  IncidentRecorder sink;
  StoreWatch watch(sink);
  SteadyTime now{};
  watch.look({}, now);
  CHECK(raises(sink, store_unwritable) == 0);
  const StoreLook full{.writable = false, .reason = "disk full", .records_waiting = 7};
  watch.look(full, now += seconds(1));
  REQUIRE(sink.open(store_unwritable, ""));
  CHECK(sink.events().back().raised == false);  // the other kinds are cleared
  watch.look(full, now += seconds(1));
  CHECK(raises(sink, store_unwritable) == 1);  // no news
  watch.look({.writable = false, .reason = "read-only"}, now += seconds(1));
  CHECK(raises(sink, store_unwritable) == 2);
  watch.look({}, now += seconds(1));
  watch.look({}, now += seconds(4));
  CHECK(sink.open(store_unwritable, ""));
  watch.look(full, now += seconds(1));  // on the edge of full
  watch.look({}, now += seconds(1));
  watch.look({}, now += seconds(4));
  CHECK(sink.open(store_unwritable, ""));
  watch.look({}, now += seconds(1));
  CHECK_FALSE(sink.open(store_unwritable, ""));
  CHECK(raises(sink, store_unwritable) == 3);
}

TEST_CASE("lost records are counted in the incident, which ends a minute after the last") {
  IncidentRecorder sink;
  StoreWatch watch(sink);
  SteadyTime now{};
  const auto lost = [](int64_t count) { return StoreLook{.records_dropped = count}; };
  watch.look(lost(0), now);
  watch.look(lost(3), now += seconds(1));
  watch.look(lost(3), now += seconds(59));
  CHECK(sink.open(records_dropped, ""));
  watch.look(lost(5), now += seconds(1));
  CHECK(raises(sink, records_dropped) == 2);
  const auto events = sink.events();
  const auto last = std::find_if(events.rbegin(), events.rend(), [](const auto& e) { return e.raised; });
  CHECK(last->numbers.find("lost")->as_integer() == 5);
  watch.look(lost(5), now += seconds(60));
  CHECK_FALSE(sink.open(records_dropped, ""));
  watch.look(lost(6), now += seconds(1));
  CHECK(sink.events().at(sink.events().size() - 1).kind == records_dropped);
  CHECK(sink.events().back().numbers.find("lost")->as_integer() == 1);
  CHECK(sink.events().back().numbers.find("lost_since_start")->as_integer() == 6);
}

TEST_CASE("a nearly full disk is raised once, with hysteresis; an unknown one is nothing") {
  IncidentRecorder sink;
  StoreWatch watch(sink);
  const auto free = [](int64_t mib) {
    return StoreLook{.disk_free_bytes = mib * kMiB, .disk_total_bytes = 1000 * kMiB};
  };
  watch.look({}, {});
  watch.look(free(256), {});
  CHECK_FALSE(sink.open(disk_low, ""));
  watch.look(free(255), {});
  CHECK(sink.open(disk_low, ""));
  watch.look(free(319), {});
  watch.look({}, {});
  CHECK(sink.open(disk_low, ""));
  CHECK(raises(sink, disk_low) == 1);
  watch.look(free(320), {});
  CHECK_FALSE(sink.open(disk_low, ""));
}

TEST_CASE("an engine that does not answer is silent after the limit, until it answers") {
  IncidentRecorder sink;
  EngineWatch watch(sink, "qwen", seconds(60));
  SteadyTime now{};
  const EngineLook heard{.ready = true, .instance = "a", .answered = true};
  const EngineLook quiet{.ready = true, .instance = "a"};
  watch.look(heard, now);
  watch.look(quiet, now += seconds(59));
  CHECK_FALSE(sink.open(engine_silent, "qwen"));
  watch.look(heard, now += seconds(1));
  watch.look(quiet, now += seconds(59));
  CHECK_FALSE(sink.open(engine_silent, "qwen"));
  watch.look(quiet, now += seconds(1));
  CHECK(sink.open(engine_silent, "qwen"));
  watch.look(quiet, now += seconds(100));
  CHECK(raises(sink, engine_silent) == 1);
  watch.look(heard, now += seconds(1));
  CHECK_FALSE(sink.open(engine_silent, "qwen"));
}

TEST_CASE("silence counts from when an instance became ready, and ends with it") {
  IncidentRecorder sink;
  EngineWatch watch(sink, "qwen", seconds(60));
  SteadyTime now{};
  watch.look({.ready = true, .instance = "a"}, now);
  watch.look({.ready = true, .instance = "a"}, now += seconds(50));
  watch.look({.ready = false, .instance = "a"}, now += seconds(1));
  watch.look({.ready = true, .instance = "b"}, now += seconds(30));
  watch.look({.ready = true, .instance = "b"}, now += seconds(59));
  CHECK(raises(sink, engine_silent) == 0);
  watch.look({.ready = true, .instance = "b"}, now += seconds(1));
  CHECK(sink.open(engine_silent, "qwen"));
  watch.look({.ready = false, .instance = "b"}, now += seconds(1));
  CHECK_FALSE(sink.open(engine_silent, "qwen"));

  EngineWatch never(sink, "gemma", seconds(0));
  never.look({.ready = true, .instance = "a"}, now);
  never.look({.ready = true, .instance = "a"}, now += seconds(10'000));
  CHECK_FALSE(sink.open(engine_silent, "gemma"));
}

TEST_CASE("books and memory: a drift is raised with the numbers, and ends with the process") {
  IncidentRecorder sink;
  EngineWatch watch(sink, "qwen", seconds(60));
  SteadyTime now{};
  const auto look = [&](int64_t observed_mib, EngineLook base = {}) {
    base.ready = base.answered = true;
    if (base.instance.empty()) base.instance = "a";
    base.booked_bytes = 1000 * kMiB;
    base.observed_bytes = observed_mib * kMiB;
    watch.look(base, now);
    now += seconds(5);
  };
  for (int i = 0; i < 13; ++i) look(1100);
  REQUIRE(sink.open(memory_drift, "qwen"));
  const Json numbers = sink.events().back().numbers;
  CHECK(numbers.find("difference_bytes")->as_integer() == 100 * kMiB);
  CHECK(numbers.find("bound_bytes")->as_integer() == 64 * kMiB);
  CHECK(sink.events().back().text.find("100 MiB more") != std::string::npos);
  for (int i = 0; i < 5; ++i) look(1300);
  CHECK(raises(sink, memory_drift) == 2);
  look(1300, {.instance = "b"});
  CHECK_FALSE(sink.open(memory_drift, "qwen"));
  for (int i = 0; i < 11; ++i) look(500, {.instance = "b"});
  CHECK(sink.open(memory_drift, "qwen") == false);
  look(500, {.instance = "b"});
  CHECK(sink.open(memory_drift, "qwen"));
  CHECK(sink.events().back().text.find("500 MiB less") != std::string::npos);
}

TEST_CASE("a prefix cache that finds nothing is raised after 200 requests, and ends with a hit or the process") {
  IncidentRecorder sink;
  EngineWatch watch(sink, "qwen", seconds(60));
  SteadyTime now{};
  const auto look = [&](int64_t queries, int64_t hits, bool on = true, bool answered = true) {
    watch.look({.ready = true, .instance = "a", .answered = answered, .keeps_prefixes = on,
                .prefix_queries = queries, .prefix_hits = hits}, now += seconds(5));
  };
  look(0, 0);
  look(199, 0);
  CHECK_FALSE(sink.open(prefix_cache_no_hits, "qwen"));
  look(200, 0);
  REQUIRE(sink.open(prefix_cache_no_hits, "qwen"));
  CHECK(sink.events().back().numbers.find("requests")->as_integer() == 200);
  look(300, 0);
  look(0, 0, true, false);  // no answer says nothing
  CHECK(raises(sink, prefix_cache_no_hits) == 1);
  CHECK(sink.open(prefix_cache_no_hits, "qwen"));
  look(310, 1);
  CHECK_FALSE(sink.open(prefix_cache_no_hits, "qwen"));
  look(509, 1);
  CHECK_FALSE(sink.open(prefix_cache_no_hits, "qwen"));
  look(510, 1);
  CHECK(sink.open(prefix_cache_no_hits, "qwen"));
  look(511, 1, false);  // switched off: nothing is expected of it
  CHECK_FALSE(sink.open(prefix_cache_no_hits, "qwen"));
  look(711, 1);
  CHECK(sink.open(prefix_cache_no_hits, "qwen"));
  watch.look({.ready = false, .instance = ""}, now += seconds(5));
  CHECK_FALSE(sink.open(prefix_cache_no_hits, "qwen"));
}

TEST_CASE("no drift is seen while a resize is under way, or of an engine that does not say") {
  IncidentRecorder sink;
  EngineWatch watch(sink, "qwen", seconds(60));
  SteadyTime now{};
  for (int i = 0; i < 30; ++i, now += seconds(5)) {
    EngineLook look{.ready = true, .instance = "a", .answered = true, .observed_bytes = 1 << 30};
    watch.look(look, now);
    look.booked_bytes = 1;
    look.changing = true;
    watch.look(look, now);
    look.changing = false;
    look.observed_bytes = -1;
    watch.look(look, now);
  }
  CHECK(raises(sink, memory_drift) == 0);
}

}  // namespace
}  // namespace tandem::service
