// The store while its file cannot grow: what waits, what is refused, what goes on, and what comes back.
// A limit on the size of files stands for the full disk: it needs no privilege.
#include <signal.h>
#include <sys/resource.h>

#include "service/key_ring.h"
#include "service/store/store.h"
#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

using std::chrono::seconds;

class FullDisk {
 public:
  FullDisk() {
    struct sigaction ignore{};
    ignore.sa_handler = SIG_IGN;
    REQUIRE(::sigaction(SIGXFSZ, &ignore, nullptr) == 0);
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit small{.rlim_cur = 4096, .rlim_max = before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  }
  ~FullDisk() { (void)::setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

std::unique_ptr<Store> open_store(const TempDir& dir, size_t queue_max = 4096) {
  auto store = Store::open({.path = dir.path() + "/t.db", .queue_max = queue_max});
  INFO((store.ok() ? "" : store.error().message));
  REQUIRE(store.ok());
  return std::move(*store);
}

RequestRecord sample(int number) {
  return {.id = "r" + std::to_string(number), .route = "/x", .model = "alpha", .status = 200};
}

StoredResponse response(const std::string& id) {
  return {.id = id, .key_id = "k", .created_unix_s = SystemClock().unix_seconds(), .body = "{}", .items = "[]"};
}

bool until(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

TEST_CASE("a store that cannot be opened from the beginning is a copy until it can be") {
  const TempDir dir;
  const std::string place = dir.path() + "/state";  // missing: nothing can be made in it
  const Store::Options options{.path = place + "/t.db", .copy_path = dir.path() + "/copy.db"};
  CHECK_FALSE(Store::open({.path = options.path}).ok());  // where no copy is wanted
  auto opened = Store::open(options);
  INFO((opened.ok() ? "" : opened.error().message));
  REQUIRE(opened.ok());
  Store& store = **opened;
  REQUIRE(until([&] { return !store.health().writable; }));
  CHECK(store.keys()->empty());
  CHECK_FALSE(store.add_key({.id = "k", .hash = "h", .label = "l", .created_unix_s = 1}).ok());
  store.record(sample(1));
  REQUIRE(until([&] { return store.counters().records_waiting == 1; }));
  CHECK(std::filesystem::exists(options.copy_path));
  std::filesystem::create_directory(place);
  REQUIRE(until([&] { return store.health().writable && store.counters().records_written == 1; }));
  CHECK(store.add_key({.id = "k", .hash = "h", .label = "l", .created_unix_s = 1}).ok());
  CHECK_FALSE(std::filesystem::exists(options.copy_path));
  opened->reset();
  const auto again = Store::open({.path = options.path});
  REQUIRE(again.ok());
  CHECK((*again)->record_count().value() == 1);
  CHECK((*again)->keys()->size() == 1);
}

TEST_CASE("what cannot be written waits and is written later; what reads goes on") {
  const TempDir dir;
  const auto store = open_store(dir);
  SystemClock clock;
  KeyRing keys(*store, clock, true);
  REQUIRE(keys.load().ok());
  const std::string key = keys.add("me", {.inference = true})->key;
  store->record(sample(0));
  REQUIRE(store->keep(response("resp_before")));
  REQUIRE(store->flush().ok());
  CHECK(store->health().writable);
  CHECK(store->can_keep());
  {
    const FullDisk full;
    for (int i = 1; i <= 10; ++i) store->record(sample(i));
    // Promised before anybody knew.
    REQUIRE(store->keep(response("resp_late")));
    const auto flushed = store->flush();
    REQUIRE_FALSE(flushed.ok());
    CHECK(flushed.error().message.find("10 request records cannot be written") != std::string::npos);
    CHECK_FALSE(store->health().writable);
    CHECK(store->health().failing_since_unix_s > 0);
    CHECK_FALSE(store->health().reason.empty());
    CHECK_FALSE(store->can_keep());
    CHECK(store->counters().records_waiting == 10);
    CHECK(store->record_count().value() == 1);
    CHECK(store->find("resp_before", "k").ok());
    CHECK(store->find("resp_late", "k").ok());
    CHECK_FALSE(store->find("resp_late", "other").ok());
    CHECK(keys.authenticate(std::nullopt, key).ok());
    CHECK_FALSE(keys.add("late", {.inference = true}).ok());
    CHECK_FALSE(store->put_incidents({{.id = 1, .kind = "died"}}).ok());
  }
  CHECK(until([&] { return store->health().writable; }));
  REQUIRE(store->flush().ok());
  CHECK(store->record_count().value() == 11);
  CHECK(store->counters().records_waiting == 0);
  CHECK(store->counters().records_dropped == 0);
  CHECK(store->counters().responses_dropped == 0);
  CHECK(store->health().failing_since_unix_s == 0);
  CHECK(store->find("resp_late", "k").ok());
  CHECK(keys.add("late", {.inference = true}).ok());
}

TEST_CASE("what waits is written as soon as anything can be") {
  const TempDir dir;
  const auto store = open_store(dir);
  {
    const FullDisk full;
    store->record(sample(1));
    REQUIRE(store->keep(response("resp_1")));
    CHECK_FALSE(store->flush().ok());
  }
  REQUIRE(store->add_key({.id = "tdm_1", .hash = "h", .label = "l"}).ok());
  CHECK(store->health().writable);
  CHECK(until([&] { return store->record_count().value() == 1; }));
  CHECK(until([&] { return store->counters().responses_written == 1; }));
}

TEST_CASE("it finds out by itself that it can write again, also when nothing waits") {
  const TempDir dir;
  const auto store = open_store(dir);
  {
    const FullDisk full;
    CHECK_FALSE(store->add_key({.id = "tdm_1", .hash = "h", .label = "l"}).ok());
    CHECK_FALSE(store->health().writable);
  }
  CHECK(until([&] { return store->health().writable; }));
}

TEST_CASE("what waits is bounded: the oldest go, and are counted") {
  const TempDir dir;
  const auto store = open_store(dir, 16);
  {
    const FullDisk full;
    for (int i = 0; i < 50; ++i) {
      store->record(sample(i));
      while (!store->record_count().ok()) {
      }
    }
    CHECK(store->counters().records_waiting == 16);
    CHECK(store->counters().records_dropped == 34);
  }
  CHECK(until([&] { return store->health().writable; }));
  CHECK(until([&] { return store->record_count().value() == 16; }));
}

TEST_CASE("a response that waits can be deleted, and one that never was written is counted") {
  const TempDir dir;
  auto store = open_store(dir);
  const FullDisk full;
  REQUIRE(store->keep(response("resp_1")));
  REQUIRE(store->keep(response("resp_2")));
  CHECK(until([&] { return !store->health().writable; }));
  CHECK(store->remove("resp_1", "k").ok());
  CHECK_FALSE(store->find("resp_1", "k").ok());
  CHECK(store->find("resp_2", "k").ok());
  CHECK(store->counters().responses_written == 0);
}

TEST_CASE("it opens on a full disk what was closed in order or killed there") {
  const TempDir dir;
  for (const bool in_order : {true, false}) {
    auto store = open_store(dir);
    store->record(sample(1));
    (void)store->flush();
    if (!in_order) {  // what a kill leaves: the log is there
      std::filesystem::copy_file(dir.path() + "/t.db-wal", dir.path() + "/wal");
      std::filesystem::copy_file(dir.path() + "/t.db", dir.path() + "/db");
    }
    store.reset();
    if (!in_order) {
      std::filesystem::rename(dir.path() + "/wal", dir.path() + "/t.db-wal");
      std::filesystem::rename(dir.path() + "/db", dir.path() + "/t.db");
    }
    const FullDisk full;
    const auto again = open_store(dir);
    CHECK(again->record_count().value() == (in_order ? 1 : 2));
  }
}

}  // namespace
}  // namespace tandem::service
