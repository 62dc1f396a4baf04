#include "service/store/store.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "service/key_ring.h"
#include "service/sha256.h"
#include "service/store/migrations.h"
#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

RequestRecord sample(const std::string& id) {
  return {.id = id,
          .route = "/v1/chat/completions",
          .model = "alpha",
          .key_id = "tdm_00000001",
          .created_unix_s = 1'700'000'123,
          .prompt_tokens = 3,
          .completion_tokens = 5,
          .status = 200,
          .stream = true,
          .outcome = Outcome::finished,
          .reason = "stop"};
}

StoredKey sample_key(const std::string& id) {
  return {.id = id,
          .hash = sha256_hex("secret"),
          .label = "me",
          .scopes = {.inference = true, .admin = false},
          .created_unix_s = 1'700'000'000};
}

std::unique_ptr<Store> open_store(const TempDir& dir, int64_t rows = 1'000'000,
                                  size_t queue_max = 4096) {
  auto store =
      Store::open({.path = dir.path() + "/t.db", .record_rows = rows, .queue_max = queue_max});
  INFO((store.ok() ? "" : store.error().message));
  REQUIRE(store.ok());
  return std::move(*store);
}

TEST_CASE("keys and records survive reopening; last use is taken from the records") {
  const TempDir dir;
  {
    const auto store = open_store(dir);
    REQUIRE(store->add_key(sample_key("tdm_00000001")).ok());
    CHECK_FALSE(store->add_key(sample_key("tdm_00000001")).ok());
    for (int i = 0; i < 1000; ++i) store->record(sample("r" + std::to_string(i)));
    REQUIRE(store->flush().ok());
    CHECK(store->counters().records_written == 1000);
    CHECK(store->counters().records_dropped == 0);
  }
  const auto store = open_store(dir);
  CHECK(store->record_count().value() == 1000);
  const auto keys = store->keys();
  REQUIRE(keys.ok());
  REQUIRE(keys->size() == 1);
  CHECK((*keys)[0].last_used_unix_s == 1'700'000'123);
  CHECK((*keys)[0].scopes == Scopes{.inference = true, .admin = false});
  struct stat status{};
  REQUIRE(::stat((dir.path() + "/t.db").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
}

TEST_CASE("kill -9 loses no record that was committed, and no key") {
  const TempDir dir;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    auto store = Store::open({.path = dir.path() + "/t.db"});
    if (!store.ok() || !(*store)->add_key(sample_key("tdm_00000001")).ok()) ::_exit(1);
    for (int i = 0; i < 500; ++i) (*store)->record(sample("r" + std::to_string(i)));
    if (!(*store)->flush().ok()) ::_exit(2);
    // From here on "requests in flight": these may be lost.
    for (int i = 0; i < 2000; ++i) (*store)->record(sample("late" + std::to_string(i)));
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
  const auto store = open_store(dir);
  CHECK(store->record_count().value() >= 500);
  CHECK(store->keys()->size() == 1);
}

TEST_CASE("a full queue drops and counts, it never blocks") {
  const TempDir dir;
  const auto store = open_store(dir, 1'000'000, 8);
  for (int i = 0; i < 20'000; ++i) store->record(sample("r"));
  const int64_t dropped = store->counters().records_dropped;
  CHECK(dropped > 0);
  while (!store->flush().ok()) {
  }
  CHECK(store->record_count().value() == 20'000 - dropped);
}

TEST_CASE("the oldest records go when there are too many") {
  const TempDir dir;
  const auto store = open_store(dir, 1000);
  for (int i = 0; i < 4000; ++i) {
    store->record(sample("r" + std::to_string(i)));
    if (i % 500 == 0) REQUIRE(store->flush().ok());
  }
  REQUIRE(store->flush().ok());
  CHECK(store->record_count().value() < 3000);
  CHECK(store->record_count().value() >= 1000);
}

TEST_CASE("migrations run step by step, once, and refuse a newer database") {
  const TempDir dir;
  auto database = Database::open(dir.path() + "/m.db");
  REQUIRE(database.ok());
  CHECK(schema_version(*database).value() == 0);
  REQUIRE(migrate(*database).ok());
  CHECK(schema_version(*database).value() == schema_version_latest());
  REQUIRE(migrate(*database).ok());
  REQUIRE(database->execute("PRAGMA user_version=99").ok());
  const auto newer = migrate(*database);
  REQUIRE_FALSE(newer.ok());
  CHECK(newer.error().code == Errc::corrupt);
}

TEST_CASE("a file that is no database is refused, not overwritten") {
  const TempDir dir;
  const std::string path = dir.path() + "/t.db";
  std::ofstream(path) << std::string(5000, 'x');
  const auto store = Store::open({.path = path});
  REQUIRE_FALSE(store.ok());
  CHECK(store.error().code == Errc::corrupt);
  CHECK(std::filesystem::file_size(path) == 5000);
}

TEST_CASE("SHA-256 of the standard's examples") {
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(random_hex(20).size() == 40);
  CHECK(random_hex(20) != random_hex(20));
  CHECK(equal_constant_time("ab", "ab"));
  CHECK_FALSE(equal_constant_time("ab", "ac"));
  CHECK_FALSE(equal_constant_time("ab", "abc"));
}

// The life of a key.
class Ring {
 public:
  explicit Ring(bool require_key = true) : keys(*store, clock, require_key) {
    REQUIRE(keys.load().ok());
  }
  TempDir dir;
  FakeClock clock;
  std::unique_ptr<Store> store = open_store(dir);
  KeyRing keys;
};

bool valid(const KeyRing& keys, const std::string& key) {
  const bool bearer = keys.authenticate("Bearer " + key, std::nullopt).ok();
  CHECK(bearer == keys.authenticate(std::nullopt, key).ok());
  CHECK(bearer == keys.authenticate("bearer  " + key + " ", key).ok());
  return bearer;
}

TEST_CASE("a key is shown once, works in both headers, and dies when revoked") {
  Ring ring;
  const auto made = ring.keys.add("me", {.inference = true, .admin = true});
  REQUIRE(made.ok());
  CHECK(made->key.starts_with(made->stored.id + "_"));
  CHECK(made->key.size() == 12 + 1 + 40);
  CHECK(valid(ring.keys, made->key));
  const auto identity = ring.keys.authenticate(std::nullopt, made->key);
  CHECK(identity->key_id == made->stored.id);
  CHECK(identity->scopes == Scopes{.inference = true, .admin = true});
  // What is stored does not hold the secret.
  const auto listed = ring.keys.list();
  REQUIRE(listed.ok());
  CHECK((*listed)[0].hash == sha256_hex(made->key));

  REQUIRE(ring.keys.revoke(made->stored.id).ok());
  CHECK_FALSE(valid(ring.keys, made->key));
  const auto twice = ring.keys.revoke(made->stored.id);
  REQUIRE_FALSE(twice.ok());
  CHECK(twice.error().code == Errc::not_found);

  KeyRing after_restart(*ring.store, ring.clock, true);
  REQUIRE(after_restart.load().ok());
  CHECK_FALSE(valid(after_restart, made->key));
}

TEST_CASE("keys are found again after a restart") {
  Ring ring;
  const auto made = ring.keys.add("me", {.inference = true, .admin = false});
  REQUIRE(made.ok());
  KeyRing next(*ring.store, ring.clock, true);
  CHECK_FALSE(valid(next, made->key));
  REQUIRE(next.load().ok());
  CHECK(valid(next, made->key));
}

TEST_CASE("wrong headers and near misses are refused without repeating the key") {
  Ring ring;
  const std::string key = ring.keys.add("me", {.inference = true, .admin = false})->key;
  std::string near = key;
  near.back() = near.back() == '0' ? '1' : '0';
  CHECK_FALSE(valid(ring.keys, near));
  CHECK_FALSE(valid(ring.keys, key.substr(0, 12)));
  CHECK_FALSE(valid(ring.keys, key + "0"));
  CHECK_FALSE(valid(ring.keys, ""));
  CHECK_FALSE(valid(ring.keys, std::string(100'000, 'a')));
  CHECK_FALSE(ring.keys.authenticate(std::nullopt, std::nullopt).ok());
  CHECK_FALSE(ring.keys.authenticate("Basic " + key, std::nullopt).ok());
  CHECK_FALSE(ring.keys.authenticate(key, std::nullopt).ok());
  CHECK_FALSE(ring.keys.authenticate("Bearer " + key, near).ok());
  const auto refused = ring.keys.authenticate("Bearer " + near, std::nullopt);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::unauthorized);
  CHECK(refused.error().message.find(near) == std::string::npos);
}

TEST_CASE("without require_key only the absence of a key is let in") {
  Ring ring(false);
  const auto open = ring.keys.authenticate(std::nullopt, std::nullopt);
  REQUIRE(open.ok());
  CHECK(open->scopes == Scopes{.inference = true, .admin = false});
  CHECK_FALSE(ring.keys.authenticate("Bearer wrong", std::nullopt).ok());
}

TEST_CASE("a session key expires and is never stored") {
  Ring ring;
  const std::string key = ring.keys.add_session(std::chrono::seconds(60));
  CHECK(valid(ring.keys, key));
  CHECK(ring.keys.list()->empty());
  ring.clock.advance(std::chrono::seconds(61));
  CHECK_FALSE(valid(ring.keys, key));
}

TEST_CASE("labels and scopes are checked") {
  Ring ring;
  CHECK_FALSE(ring.keys.add("", {.inference = true}).ok());
  CHECK_FALSE(ring.keys.add(std::string(101, 'x'), {.inference = true}).ok());
  CHECK_FALSE(ring.keys.add("\xff", {.inference = true}).ok());
  CHECK_FALSE(ring.keys.add("x", {}).ok());
  CHECK(parse_scopes("admin,inference").value() == Scopes{.inference = true, .admin = true});
  CHECK_FALSE(parse_scopes("inference,").ok());
  CHECK_FALSE(parse_scopes("root").ok());
  CHECK(scopes_text({.inference = true, .admin = true}) == "inference,admin");
}

}  // namespace
}  // namespace tandem::service
