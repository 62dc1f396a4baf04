// Stored responses: whose they are, how long and how much of them is kept, and that what is deleted
// is gone from the files.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "service/sha256.h"
#include "service/store/store.h"
#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

StoredResponse sample(const std::string& id, const std::string& key, size_t text_bytes = 10) {
  return {.id = id,
          .key_id = key,
          .created_unix_s = 1'700'000'000,
          .body = R"({"id":")" + id + R"("})",
          .items = std::string(text_bytes, 'x')};
}

std::unique_ptr<Store> open_store(const TempDir& dir, const Clock& clock,
                                  ResponseLimits limits = {}) {
  auto store = Store::open({.path = dir.path() + "/t.db", .responses = limits, .clock = &clock});
  INFO((store.ok() ? "" : store.error().message));
  REQUIRE(store.ok());
  return std::move(*store);
}

bool has(Store& store, const std::string& id, const std::string& key) {
  const auto found = store.find(id, key);
  if (!found.ok()) CHECK(found.error().code == Errc::not_found);
  return found.ok();
}

bool files_hold(const TempDir& dir, const std::string& text) {
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (bytes.find(text) != std::string::npos) return true;
  }
  return false;
}

TEST_CASE("a response is found at once and after a restart, by its own key only") {
  const TempDir dir;
  const FakeClock clock;
  {
    const auto store = open_store(dir, clock);
    REQUIRE(store->keep(sample("resp_1", "k1")));
    const auto found = store->find("resp_1", "k1");
    REQUIRE(found.ok());
    CHECK(found->body == R"({"id":"resp_1"})");
    CHECK(found->items == "xxxxxxxxxx");
    CHECK(found->created_unix_s == 1'700'000'000);
    CHECK_FALSE(has(*store, "resp_1", "k2"));
    CHECK_FALSE(has(*store, "resp_1", ""));
    CHECK_FALSE(has(*store, "resp_2", "k1"));
    CHECK_FALSE(store->remove("resp_1", "k2").ok());
    CHECK(store->counters().responses_written == 1);
    CHECK(store->counters().response_bytes == found->bytes());
  }
  const auto store = open_store(dir, clock);
  CHECK(has(*store, "resp_1", "k1"));
  REQUIRE(store->remove("resp_1", "k1").ok());
  CHECK_FALSE(has(*store, "resp_1", "k1"));
  CHECK(store->remove("resp_1", "k1").error().code == Errc::not_found);
  CHECK(store->counters().response_bytes == 0);
}

TEST_CASE("what is deleted is in no file any more, nor what a revoked key had") {
  const TempDir dir;
  const FakeClock clock;
  const auto store = open_store(dir, clock);
  REQUIRE(store->add_key({.id = "tdm_00000001", .hash = sha256_hex("s"), .label = "l"}).ok());
  StoredResponse one = sample("resp_1", "tdm_00000001");
  one.items = "secret-of-one-" + std::string(50'000, 'y');
  StoredResponse two = sample("resp_2", "tdm_00000001");
  two.body = "secret-of-two";
  REQUIRE(store->keep(one));
  REQUIRE(store->keep(two));
  REQUIRE(store->flush().ok());
  CHECK(files_hold(dir, "secret-of-one"));
  REQUIRE(store->remove("resp_1", "tdm_00000001").ok());
  CHECK_FALSE(files_hold(dir, "secret-of-one"));
  CHECK_FALSE(files_hold(dir, "yyyyyyyy"));
  CHECK(files_hold(dir, "secret-of-two"));
  REQUIRE(store->revoke_key("tdm_00000001", 1'700'000'001).ok());
  CHECK_FALSE(has(*store, "resp_2", "tdm_00000001"));
  CHECK_FALSE(files_hold(dir, "secret-of-two"));
}

TEST_CASE("responses are kept for their time only") {
  const TempDir dir;
  FakeClock clock;
  {
    const auto store = open_store(dir, clock, {.lifetime_s = 100});
    REQUIRE(store->keep(sample("resp_1", "k1")));
    REQUIRE(store->flush().ok());
    clock.advance(std::chrono::seconds(99));
    CHECK(has(*store, "resp_1", "k1"));
    clock.advance(std::chrono::seconds(1));
    CHECK_FALSE(has(*store, "resp_1", "k1"));  // not shown, deleted soon
    // A newer one makes it go.
    StoredResponse newer = sample("resp_2", "k2");
    newer.created_unix_s = clock.unix_seconds();
    REQUIRE(store->keep(newer));
    REQUIRE(store->flush().ok());
    CHECK(store->counters().response_bytes == newer.bytes());
  }
  // So does a start.
  clock.advance(std::chrono::seconds(1000));
  const auto store = open_store(dir, clock, {.lifetime_s = 100});
  REQUIRE(store->flush().ok());
  CHECK(store->counters().response_bytes == 0);
}

TEST_CASE("the oldest of a key, then the oldest of all go when there is too much") {
  const TempDir dir;
  const FakeClock clock;
  const int64_t one = sample("resp_00", "k1", 1000).bytes();
  const ResponseLimits limits{.bytes_max = 5 * one, .bytes_per_key_max = 3 * one};
  auto store = open_store(dir, clock, limits);
  const auto keep = [&](const char* id, const char* key) {
    REQUIRE(store->keep(sample(id, key, 1000)));
  };
  keep("resp_00", "k1");
  keep("resp_01", "k2");
  for (const char* id : {"resp_02", "resp_03", "resp_04"}) keep(id, "k1");
  CHECK_FALSE(has(*store, "resp_00", "k1"));
  CHECK(has(*store, "resp_02", "k1"));
  CHECK(has(*store, "resp_01", "k2"));
  // The sums are read again.
  store.reset();
  store = open_store(dir, clock, limits);
  keep("resp_05", "k3");
  CHECK(has(*store, "resp_01", "k2"));
  keep("resp_06", "k3");
  CHECK_FALSE(has(*store, "resp_01", "k2"));
  CHECK(has(*store, "resp_02", "k1"));
  CHECK(store->counters().response_bytes == 5 * one);
}

TEST_CASE("a response over the limit is refused, and so are all when there is none") {
  const TempDir dir;
  const FakeClock clock;
  const auto store = open_store(dir, clock, {.bytes_per_key_max = 2000});
  CHECK(store->response_bytes_max() == 2000);
  CHECK_FALSE(store->keep(sample("resp_1", "k1", 2000)));
  CHECK(store->keep(sample("resp_2", "k1", 1000)));
  CHECK(store->counters().responses_dropped == 1);
  const TempDir other;
  const auto none = open_store(other, clock, {.bytes_per_key_max = 0});
  CHECK_FALSE(none->keep(sample("resp_1", "k1", 0)));
}

TEST_CASE("text that waits for the disk is bounded") {
  const TempDir dir;
  const FakeClock clock;
  const auto store = open_store(dir, clock);
  // Faster than a disk: more than the queue may hold, if nothing were refused.
  int64_t kept = 0;
  for (int i = 0; i < 60; ++i) {
    kept += int{store->keep(sample("resp_" + std::to_string(i), "k", size_t{4} << 20))};
  }
  CHECK(kept >= 15);
  while (!store->flush().ok()) {
  }
  CHECK(store->counters().responses_written == kept);
  CHECK(store->counters().responses_dropped == 60 - kept);
  CHECK(store->keep(sample("resp_last", "k", size_t{60} << 20)));  // nothing of it is leaked
}

TEST_CASE("kill -9 loses no response that was written") {
  const TempDir dir;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    auto store = Store::open({.path = dir.path() + "/t.db"});
    if (!store.ok()) ::_exit(1);
    StoredResponse response = sample("resp_1", "k1");
    response.created_unix_s = SystemClock().unix_seconds();
    if (!(*store)->keep(response) || !(*store)->flush().ok()) ::_exit(2);
    (void)!::write(ends[1], "x", 1);
    ::raise(SIGKILL);
  }
  char byte = 0;
  REQUIRE(::read(ends[0], &byte, 1) == 1);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  ::close(ends[0]);
  ::close(ends[1]);
  const SystemClock clock;
  CHECK(has(*open_store(dir, clock), "resp_1", "k1"));
}

}  // namespace
}  // namespace tandem::service
