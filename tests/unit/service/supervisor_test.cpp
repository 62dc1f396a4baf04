#include "service/supervisor.h"

#include <sys/wait.h>

#include "service/engine_record.h"
#include "service/spawn.h"
#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("the default model loads first, then the optional one") {
  World world("load_ms 150\n");
  world.begin();
  CHECK(world.until([&] { return world.state() == ModelState::loading; }));
  CHECK(world.state(1) == ModelState::starting);
  CHECK(world.status(1).pid == 0);
  REQUIRE(world.until_ready(0));
  REQUIRE(world.until_ready(1));
  CHECK(world.status().pid > 0);
  CHECK(world.status().facts.value().slots == world.config.default_model.slots);
  CHECK(world.changes > 3);
}

TEST_CASE("names, aliases and roles resolve; others are named in the error") {
  World world;
  world.begin();
  Supervisor& models = *world.supervisor;
  CHECK(models.resolve("alpha").value() == &world.tenant(0));
  CHECK(models.resolve("fast").value() == &world.tenant(0));
  CHECK(models.resolve("").value() == &world.tenant(0));
  CHECK(models.resolve("optional").value() == &world.tenant(1));
  const auto unknown = models.resolve("gpt-4");
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().code == Errc::not_found);
  CHECK(unknown.error().message == "no model \"gpt-4\": there are alpha, beta");
}

TEST_CASE("a killed engine is started again after the backoff, the other one is untouched") {
  World world;
  world.begin();
  REQUIRE(world.until_ready(0));
  REQUIRE(world.until_ready(1));
  const int64_t first = world.status().pid;
  const int64_t other = world.status(1).pid;
  world.kill_engine();
  REQUIRE(world.until([&] { return world.state() == ModelState::backoff; }));
  CHECK(world.status().message.find("killed by signal 9") != std::string::npos);
  CHECK(world.tenant().retry_after_s() >= 1);
  world.clock.advance(milliseconds(900));
  world.supervisor->poll_once(milliseconds(0));
  CHECK(world.state() == ModelState::backoff);
  world.clock.advance(milliseconds(200));
  REQUIRE(world.until_ready(0));
  CHECK(world.status().pid != first);
  CHECK(world.status().restarts == 1);
  CHECK(world.status(1).pid == other);
  CHECK(world.state(1) == ModelState::ready);
}

TEST_CASE("three restarts, then the model is failed until an administrator restarts it") {
  World world("load_ms 100\nload_fail no such weights\n");
  world.begin();
  int64_t starts = 0;
  const auto failed_or_waiting = [&] {
    return world.state() == ModelState::backoff || world.state() == ModelState::failed;
  };
  for (int i = 0; i < 3; ++i) {
    REQUIRE(world.until(failed_or_waiting));
    REQUIRE(world.state() == ModelState::backoff);
    world.clock.advance(seconds(1 << i));  // 1, 2, 4 s
    REQUIRE(world.until([&] { return world.state() != ModelState::backoff; }));
    ++starts;
  }
  REQUIRE(world.until(failed_or_waiting));
  CHECK(world.state() == ModelState::failed);
  CHECK(world.status().message.starts_with("no such weights"));
  CHECK(world.status().restarts == starts);
  // It does not come back by itself, and it did not hold up the other one.
  world.clock.advance(std::chrono::hours(2));
  CHECK(world.until_ready(1));
  CHECK(world.state() == ModelState::failed);
  CHECK_FALSE(world.tenant().prepare({}, soon()).ok());

  write_script(world.dir.path() + "/default.script", "");
  REQUIRE(world.supervisor->post(Role::default_model, ModelCommand::restart).ok());
  CHECK(world.until_ready(0));
}

TEST_CASE("crashes outside the window do not add up") {
  World world;
  world.begin();
  for (int i = 0; i < 6; ++i) {
    REQUIRE(world.until_ready(0));
    world.kill_engine();
    REQUIRE(world.until([&] { return world.state() == ModelState::backoff; }));
    world.clock.advance(std::chrono::minutes(11));
  }
  CHECK(world.until_ready(0));
  CHECK(world.status().restarts == 6);
}

TEST_CASE("an engine that never answers the handshake is stopped and counts as crashed") {
  World world("hang_on_hello 1\n");
  world.begin();
  REQUIRE(world.until([&] { return world.status().message == "handshake"; }));
  world.clock.advance(world.config.engines.hello_deadline);
  REQUIRE(world.until([&] { return world.state() == ModelState::draining; }));
  REQUIRE(world.until([&] { return world.status().pid != 0; }));
  world.clock.advance(world.config.engines.stop_deadline);  // drain is not answered either
  REQUIRE(world.until([&] { return world.state() == ModelState::backoff; }));
  CHECK(world.status().message == "gave no answer to the handshake");
}

TEST_CASE("unload stops in order; an engine that ignores SIGTERM is killed after the deadlines") {
  World world("", "ignore_sigterm 1\n");
  world.begin();
  REQUIRE(world.until_ready(1));
  auto process = Process::open(static_cast<pid_t>(world.status(1).pid));
  REQUIRE(process.ok());
  REQUIRE(world.supervisor->post(Role::optional_model, ModelCommand::unload).ok());
  REQUIRE(world.until([&] { return world.state(1) == ModelState::draining; }));
  for (int i = 0; i < 20; ++i) world.supervisor->poll_once(milliseconds(1));
  CHECK_FALSE(process->exited());
  world.clock.advance(world.config.engines.stop_deadline * 2);
  REQUIRE(world.until([&] { return world.state(1) == ModelState::stopped; }));
  CHECK(process->exited());
  CHECK(world.status(1).pid == 0);
  REQUIRE(world.supervisor->post(Role::optional_model, ModelCommand::load).ok());
  CHECK(world.until_ready(1));
}

TEST_CASE("a protocol version of another world is a stop, not a loop of adoptions") {
  World world("protocol_version 99\n");
  world.begin();
  REQUIRE(world.until([&] { return world.state() == ModelState::backoff; }));
  INFO(world.status().message);
  CHECK(world.status().message.find("version") != std::string::npos);
}

// Runs a supervisor in a process of its own until both models are ready, and kills that process.
void run_and_kill_host(World& world) {
  const pid_t host = ::fork();
  REQUIRE(host >= 0);
  if (host == 0) {
    world.begin();
    if (!world.until_ready(0) || !world.until_ready(1)) ::_exit(1);
    ::raise(SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(host, &status, 0) == host);
  REQUIRE(WIFSIGNALED(status));
}

TEST_CASE("after kill -9 of the host the engines are adopted, not started again") {
  World world;
  run_and_kill_host(world);
  const auto record = read_engine_record(world.dir.path() + "/engine-default.json");
  REQUIRE(record.ok());
  world.begin();
  REQUIRE(world.until_ready(0));
  REQUIRE(world.until_ready(1));
  CHECK(world.status().pid == record->pid);
  CHECK(world.status().instance_id == record->instance_id);
  CHECK(world.status().adopted);
  CHECK(world.status(1).adopted);
  CHECK(prepare_text(world.tenant())->prepared().prompt_tokens == 2);
}

TEST_CASE("an engine of a model that is no longer configured is told to end") {
  for (const char* gone : {"", ".sock", ".json"}) {  // either is enough to find it
    World world;
    run_and_kill_host(world);
    const std::string base = world.dir.path() + "/engine-optional";
    const auto record = read_engine_record(base + ".json");
    REQUIRE(record.ok());
    auto left = Process::open(static_cast<pid_t>(record->pid));
    REQUIRE(left.ok());
    if (*gone != '\0') std::filesystem::remove(base + gone);
    world.config.optional_model.reset();
    world.begin();
    CHECK(left->wait(std::chrono::seconds(10)));
    CHECK(world.until_ready(0));
    CHECK(world.status().adopted);
  }
}

TEST_CASE("an engine without a record that listens late is adopted, not joined by a second one") {
  World world;
  run_and_kill_host(world);
  const std::string base = world.dir.path() + "/engine-optional";
  const auto record = read_engine_record(base + ".json");
  REQUIRE(record.ok());
  std::filesystem::remove(base + ".json");
  std::filesystem::rename(base + ".sock", base + ".hidden");
  world.begin();
  CHECK(world.status(1).pid == 0);
  std::filesystem::rename(base + ".hidden", base + ".sock");
  REQUIRE(world.until_ready(1));
  CHECK(world.status(1).pid == record->pid);
  CHECK(world.status(1).adopted);
}

TEST_CASE("an engine of another configuration is stopped in order and started anew") {
  World world;
  run_and_kill_host(world);
  const auto record = read_engine_record(world.dir.path() + "/engine-default.json");
  REQUIRE(record.ok());
  auto old = Process::open(static_cast<pid_t>(record->pid));
  REQUIRE(old.ok());
  world.config.default_model.context_tokens += 1;
  world.begin();
  REQUIRE(world.until_ready(0));
  REQUIRE(world.until_ready(1));
  CHECK(old->exited());
  CHECK_FALSE(world.status().adopted);
  CHECK(world.status().pid != record->pid);
  CHECK(world.status().restarts == 0);
  CHECK(world.status(1).adopted);
}

TEST_CASE("an adopted engine is told its budgets: they may have changed while nobody held it") {
  World world;
  run_and_kill_host(world);
  const auto record = read_engine_record(world.dir.path() + "/engine-default.json");
  REQUIRE(record.ok());
  world.config.default_model.slots = 7;
  world.config.default_model.kv_bytes = 3 << 20;
  world.begin();
  REQUIRE(world.until_ready(0));
  CHECK(world.status().pid == record->pid);
  CHECK(world.status().adopted);
  CHECK(world.tenant().stats(soon())->slots == 7);
  CHECK(world.status().slots == 7);
}

TEST_CASE("budgets hold for the admission at once and for the engine's next start") {
  World world;
  world.begin();
  REQUIRE(world.until_ready(0));
  ModelBudget budget = budget_of(world.config.default_model);
  budget[BudgetField::slots] = 9;
  budget[BudgetField::prompt_tokens_max] = 5;
  world.supervisor->use_budget(Role::default_model, budget);
  CHECK(world.status().slots == 9);
  CHECK_FALSE(world.tenant().prepare({.input = protocol::PrepareText{.text = "hello!"}}, soon()).ok());
  CHECK(world.tenant().stats(soon())->slots == world.config.default_model.slots);
  const auto done = world.supervisor->post(Role::default_model, ModelCommand::restart);
  REQUIRE(done.ok());
  REQUIRE(world.until([&] { return world.state() != ModelState::ready; }));
  REQUIRE(world.until_ready(0));
  CHECK(world.tenant().stats(soon())->slots == 9);
}

TEST_CASE("an engine of an older build is replaced in order, and that is no crash") {
  World world;
  const std::string base = world.dir.path() + "/engine-default";
  const std::string script = world.dir.path() + "/old.script";
  SECTION("it refuses the handshake") { write_script(script, "engine_version 1\n"); }
  SECTION("it welcomes with its own version") { write_script(script, "protocol_version 1\n"); }
  const auto pid = spawn({binary_path("fake_engine"), "--model", script, "--name", "alpha",
                          "--socket", base + ".sock", "--config-hash", "old"},
                         {});
  REQUIRE(pid.ok());
  auto old = Process::open(*pid);
  REQUIRE(old.ok());
  const auto ticks = process_start_ticks(*pid);
  REQUIRE(ticks.ok());
  REQUIRE(write_engine_record(base + ".json", {.pid = *pid,
                                               .start_ticks = static_cast<int64_t>(*ticks),
                                               .config_hash = "old"})
              .ok());
  bool backed_off = false;
  world.begin();
  CHECK(world.status().adopted);
  REQUIRE(world.until([&] {
    backed_off = backed_off || world.state() == ModelState::backoff;
    return world.state() == ModelState::ready;
  }));
  CHECK(old->exited());
  CHECK_FALSE(backed_off);
  CHECK(world.status().pid != *pid);
  CHECK_FALSE(world.status().adopted);
  CHECK(world.status().restarts == 0);
}

TEST_CASE("a changed model file, another instance and other weights are no adoption") {
  World world;
  run_and_kill_host(world);
  const std::string path = world.dir.path() + "/engine-default.json";
  auto record = read_engine_record(path);
  REQUIRE(record.ok());
  const int64_t pid = record->pid;
  SECTION("file") { write_script(world.dir.path() + "/default.script", "answer other\n"); }
  SECTION("instance") {
    record->instance_id = "somebody else";
    REQUIRE(write_engine_record(path, *record).ok());
  }
  SECTION("weights") {
    record->weights_hash = "0000";
    REQUIRE(write_engine_record(path, *record).ok());
  }
  world.begin();
  REQUIRE(world.until_ready(0));
  CHECK(world.status().pid != pid);
}

TEST_CASE("a damaged record and a dead engine's record do no harm") {
  World world;
  std::ofstream(world.dir.path() + "/engine-default.json") << "{\"pid\": 1";
  // This process lives, but did not start at tick 7: it is somebody else's.
  const auto bystander = spawn({"sleep", "100"}, {});
  REQUIRE(bystander.ok());
  auto process = Process::open(*bystander);
  REQUIRE(process.ok());
  REQUIRE(write_engine_record(world.dir.path() + "/engine-optional.json",
                              {.pid = *bystander, .start_ticks = 7, .config_hash = "x"})
              .ok());
  world.begin();
  REQUIRE(world.until_ready(0));
  REQUIRE(world.until_ready(1));
  CHECK(world.status(1).pid != *bystander);
  CHECK_FALSE(process->exited());
  CHECK(process->signal(SIGKILL));
  CHECK(process->wait(seconds(10)));
  (void)process->reap();
}

TEST_CASE("engines that outlive are adopted by the next supervisor") {
  World world;
  world.begin();
  REQUIRE(world.until_ready(0));
  REQUIRE(world.until_ready(1));
  const int64_t pid = world.status().pid;
  world.supervisor->begin_stop(true);
  REQUIRE(world.until([&] { return world.supervisor->stopped(); }));
  world.supervisor.reset();
  world.begin();
  REQUIRE(world.until_ready(0));
  CHECK(world.status().pid == pid);
}

TEST_CASE("the engine does not inherit descriptors, and has its own session") {
  World world;
  const Fd leaked(::dup(1));  // without close-on-exec
  world.begin();
  REQUIRE(world.until_ready(0));
  const auto pid = static_cast<pid_t>(world.status().pid);
  CHECK(::getsid(pid) == pid);
  const std::string fd = "/proc/" + std::to_string(pid) + "/fd/";
  CHECK_FALSE(std::filesystem::equivalent(fd + "1", "/proc/self/fd/1"));
  std::error_code code;
  const auto target = std::filesystem::read_symlink(fd + std::to_string(leaked.get()), code);
  if (!code) CHECK(target != std::filesystem::read_symlink("/proc/self/fd/1"));
}

}  // namespace
}  // namespace tandem::service
