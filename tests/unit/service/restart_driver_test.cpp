// Starts and stops of engines as the restart machine orders them: the gate and its numbers, the order of
// stop, memory and reclaim, what the guard stopped, whole groups, and the two retry budgets.
#include "service/restart_driver.h"

#include <poll.h>
#include <sys/socket.h>

#include "memory_budget/reclaim.h"
#include "service/unix_socket.h"
#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

using budget::kGiB;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST_CASE("a closed gate is a state with its numbers, an incident after two minutes, and opens by itself") {
  World world;
  world.host.available_bytes = 10 * kGiB;
  world.host.others = {{.name = "hog (process 7)", .bytes = 80 * kGiB}};
  world.begin();
  REQUIRE(world.until([&] { return world.state() == ModelState::waiting; }));
  const std::string message = world.status().message;
  INFO(message);
  CHECK(message.starts_with("waiting for memory: needs 24 GiB (peak "));
  CHECK(message.find("performance floor 24 GiB") != std::string::npos);
  CHECK(message.find("available 10 GiB") != std::string::npos);
  CHECK(message.find("held by: hog (process 7) 80 GiB") != std::string::npos);
  CHECK(world.status().pid == 0);
  CHECK_FALSE(world.tenant().prepare({}, soon()).ok());
  CHECK(world.incidents.open.empty());
  world.clock.advance(std::chrono::minutes(2) + seconds(1));
  REQUIRE(world.until([&] { return world.incidents.open.contains("gate_closed alpha"); }));
  CHECK(world.incidents.open["gate_closed alpha"].find("held by: hog") != std::string::npos);
  world.host.available_bytes = 100 * kGiB;
  world.clock.advance(seconds(10));
  REQUIRE(world.until_ready(0));
  CHECK_FALSE(world.incidents.open.contains("gate_closed alpha"));
  CHECK(world.until_ready(1));
}

TEST_CASE("caches are dropped after the engine is gone and before the next start, never before") {
  World world;
  world.reclaimer.answers = true;
  world.begin();
  REQUIRE(world.until_ready(0));
  REQUIRE(world.until_ready(1));
  CHECK(world.reclaimer.starts == 0);  // a first start has nothing to give back
  const auto first = static_cast<pid_t>(world.status(1).pid);
  auto process = Process::open(first);
  REQUIRE(process.ok());
  bool gone = false;
  world.reclaimer.on_start = [&] { gone = process->exited(); };
  REQUIRE(world.supervisor->post(Role::optional_model, ModelCommand::restart).ok());
  REQUIRE(world.until([&] { return world.reclaimer.starts == 1; }));
  CHECK(gone);
  for (int i = 0; i < 20; ++i) world.supervisor->poll_once(milliseconds(1));
  CHECK(world.status(1).pid == 0);  // the helper has not ended yet
  CHECK(world.state(1) == ModelState::draining);
  world.reclaimer.done = true;
  REQUIRE(world.until_ready(1));
  CHECK(world.status(1).pid != first);
  CHECK(world.status(1).restarts == 0);
}

TEST_CASE("a helper that hangs holds a start up for a minute, no longer") {
  World world;
  world.reclaimer.answers = true;
  world.begin();
  REQUIRE(world.until_ready(0));
  REQUIRE(world.until_ready(1));
  world.kill_engine();
  REQUIRE(world.until([&] { return world.reclaimer.starts == 1; }));
  world.clock.advance(seconds(61));
  CHECK(world.until_ready(0));
}

TEST_CASE("what the guard stopped says so, stays away while the level is bad, and comes back by itself") {
  World world;
  world.begin();
  REQUIRE(world.until_ready(0));
  REQUIRE(world.until_ready(1));
  world.host.level = budget::Level::red;
  world.host.stop = HostView::GuardStop{budget::Role::optional_model, "stopped by the guard (kill, black)"};
  world.kill_engine(1);
  REQUIRE(world.until([&] { return world.incidents.open.contains("stopped_by_guard beta"); }));
  CHECK(world.incidents.open["stopped_by_guard beta"].starts_with("stopped by the guard (kill, black); "));
  REQUIRE(world.until([&] { return world.state(1) == ModelState::waiting; }));
  INFO(world.status(1).message);
  CHECK(world.status(1).message.find("the guard's level forbids a start") != std::string::npos);
  world.clock.advance(std::chrono::minutes(1));
  for (int i = 0; i < 20; ++i) world.supervisor->poll_once(milliseconds(1));
  CHECK(world.state(1) == ModelState::waiting);
  CHECK(world.state(0) == ModelState::ready);
  world.host.level = budget::Level::green;
  world.clock.advance(seconds(10));
  REQUIRE(world.until_ready(1));
  CHECK(world.incidents.open.empty());
  CHECK(world.status(1).restarts == 0);  // it did not crash
}

TEST_CASE("what a driver holds is waited for until it is measured back, not for two seconds") {
  World world;
  world.config.optional_model.reset();
  world.host.available_bytes = 60 * kGiB;
  world.host.memory = {.members = 1, .anonymous_bytes = kGiB, .pids = {7}, .driver_bytes = 29 * kGiB};
  SECTION("its bytes are known") {}
  SECTION("it does not say") {
    world.host.memory.anonymous_bytes = 30 * kGiB;
    world.host.memory.driver_bytes = 0;
    world.host.memory.driver_unknown = true;
  }
  world.begin();
  REQUIRE(world.until_ready(0));
  world.host.in_driver = true;
  const int64_t first = world.status().pid;
  world.kill_engine();
  REQUIRE(world.until([&] { return world.status().pid == 0; }));
  const auto look_after = [&](seconds time) {
    world.clock.advance(time);
    for (int i = 0; i < 10; ++i) world.supervisor->poll_once(milliseconds(1));
  };
  look_after(seconds(1));
  CHECK(world.state() != ModelState::backoff);  // its process is in the driver's list
  world.host.in_driver = false;
  for (int i = 0; i < 60; ++i) look_after(seconds(1));
  CHECK(world.status().pid == 0);  // exit is not return: nothing is back yet
  for (int i = 0; i < 70; ++i) look_after(seconds(1));
  REQUIRE(world.incidents.open.contains("memory_not_returned alpha"));
  CHECK(world.incidents.open["memory_not_returned alpha"].starts_with("of 30 GiB came back 0 B after 12"));
  world.host.available_bytes = 86 * kGiB;
  look_after(seconds(1));
  CHECK(world.status().pid == 0);
  world.host.available_bytes = 88 * kGiB;  // nine tenths of 30 GiB
  REQUIRE(world.until_ready(0));
  CHECK(world.status().pid != first);
  CHECK_FALSE(world.incidents.open.contains("memory_not_returned alpha"));
}

TEST_CASE("a crash for want of memory waits half a minute, not a second") {
  World world;
  world.begin();
  REQUIRE(world.until_ready(0));
  world.host.kills = 1;  // the kernel's killer
  world.kill_engine();
  REQUIRE(world.until([&] { return world.state() == ModelState::backoff; }));
  world.clock.advance(seconds(20));
  for (int i = 0; i < 20; ++i) world.supervisor->poll_once(milliseconds(1));
  CHECK(world.state() == ModelState::backoff);
  CHECK(world.tenant().retry_after_s() > 5);
  world.clock.advance(seconds(11));
  REQUIRE(world.until_ready(0));
  CHECK(world.status().restarts == 1);
}

TEST_CASE("an engine's group ends as a whole before the next start") {
  World world;
  // Its child keeps running when the engine is killed, as workers of big engines do.
  const std::string script = world.dir.path() + "/engine";
  std::ofstream(script) << "#!/bin/sh\nsleep 1000 &\necho $! > \"" << world.dir.path()
                        << "/child.$$\"\nexec \"" << std::filesystem::absolute(binary_path("fake_engine")).string()
                        << "\" \"$@\"\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  world.config.engines.binary = script;
  world.begin();
  REQUIRE(world.until_ready(0));
  const int64_t engine = world.status().pid;
  const auto child = static_cast<pid_t>(
      std::stoll(file_text(world.dir.path() + "/child." + std::to_string(engine))));
  auto process = Process::open(child);
  REQUIRE(process.ok());
  bool child_lived_at_next = true;
  world.kill_engine();
  REQUIRE(world.until([&] {
    if (world.status().pid != 0 && world.status().pid != engine) return true;
    child_lived_at_next = !process->exited();
    return false;
  }));
  CHECK_FALSE(child_lived_at_next);
  CHECK(process->wait(seconds(10)));
  CHECK(world.until_ready(0));
}

TEST_CASE("memory that the kernel held is waited for two seconds at most") {
  World world;
  world.begin();
  REQUIRE(world.until_ready(0));
  world.host.memory.anonymous_bytes = 20 * kGiB;
  world.clock.advance(seconds(2));
  for (int i = 0; i < 10; ++i) world.supervisor->poll_once(milliseconds(1));
  world.kill_engine();  // and nothing comes back: somebody else took it
  REQUIRE(world.until([&] { return world.state() == ModelState::backoff; }));
  world.host.memory.anonymous_bytes = 0;
  world.clock.advance(milliseconds(2100));
  world.supervisor->poll_once(milliseconds(0));
  world.clock.advance(milliseconds(1100));
  CHECK(world.until_ready(0));
  CHECK_FALSE(world.incidents.open.contains("memory_not_returned alpha"));
}

TEST_CASE("the kernel's killer would take the optional model first, then the default one") {
  World world;
  world.begin();
  REQUIRE(world.until_ready(0));
  REQUIRE(world.until_ready(1));
  const auto score = [&](size_t i) {
    return file_text("/proc/" + std::to_string(world.status(i).pid) + "/oom_score_adj");
  };
  CHECK(score(0) == "300\n");
  CHECK(score(1) == "900\n");
}

TEST_CASE("a model that is stopped while the other one loads stops when that has ended") {
  World world("load_ms 300\n");
  world.begin();
  REQUIRE(world.until_ready(0));
  REQUIRE(world.until_ready(1));
  world.kill_engine(0);
  REQUIRE(world.until([&] { return world.state() == ModelState::backoff; }));
  world.clock.advance(seconds(2));
  REQUIRE(world.until([&] { return world.state() == ModelState::loading; }));
  REQUIRE(world.supervisor->post(Role::optional_model, ModelCommand::unload).ok());
  for (int i = 0; i < 5; ++i) world.supervisor->poll_once(milliseconds(1));
  if (world.state() == ModelState::loading) CHECK(world.state(1) == ModelState::ready);
  REQUIRE(world.until_ready(0));
  CHECK(world.until([&] { return world.state(1) == ModelState::stopped; }));
}

TEST_CASE("tandem-reclaim writes back, drops and compacts in this order, and takes no other word") {
  TempDir dir;
  std::filesystem::create_directories(dir.path() + "/proc/sys/vm");
  const std::string vm = dir.path() + "/proc/sys/vm/";
  std::ofstream(vm + "drop_caches") << "";
  const auto half = budget::reclaim_once(dir.path());
  REQUIRE_FALSE(half.ok());  // nothing to compact with: said, after the drop
  CHECK(half.error().message.find("compact_memory") != std::string::npos);
  CHECK(file_text(vm + "drop_caches") == "3");
  std::ofstream(vm + "compact_memory") << "";
  CHECK(budget::reclaim_once(dir.path()).ok());
  CHECK(file_text(vm + "compact_memory") == "1");
}

TEST_CASE("the helper is started, and its end is told once") {
  auto none = make_no_reclaimer();
  CHECK_FALSE(none->start());
  CHECK(none->problem().empty());
  auto works = make_helper_reclaimer("true");
  REQUIRE(works->start());
  pollfd wait{.fd = works->fd(), .events = POLLIN, .revents = 0};
  REQUIRE(::poll(&wait, 1, 10'000) == 1);
  CHECK(works->take_done());
  CHECK_FALSE(works->take_done());
  CHECK(works->problem().empty());
  auto fails = make_helper_reclaimer("false");
  REQUIRE(fails->start());
  wait.fd = fails->fd();
  REQUIRE(::poll(&wait, 1, 10'000) == 1);
  CHECK(fails->take_done());
  CHECK(fails->problem().find("exit code 1") != std::string::npos);
}

TEST_CASE("a tandemd that is not root asks the helper's socket, and its end is told once") {
  TempDir dir;
  const std::string path = dir.path() + "/reclaim.sock";
  auto reclaimer = make_socket_reclaimer(path);
  CHECK_FALSE(reclaimer->start());
  CHECK(reclaimer->problem().find("not run as root, and tandem-reclaim.socket does not answer") != std::string::npos);
  CHECK(reclaimer->fd() == -1);
  auto listener = listen_unix(path, 0600);
  REQUIRE(listener.ok());
  struct Answer {
    std::string text;
    std::string problem;
  };
  const std::string failed = budget::reclaim_answer(make_error(Errc::io, "cannot open x"));
  for (const Answer& answer : {Answer{budget::reclaim_answer({}), ""}, Answer{failed, "tandem-reclaim: cannot open x"},
                               Answer{"failed: cut", "tandem-reclaim: no answer from the helper"},
                               Answer{"", "tandem-reclaim: no answer from the helper"},
                               Answer{std::string(3 * budget::kReclaimAnswerMax, 'x'), "tandem-reclaim: no answer from the helper"}}) {
    REQUIRE(reclaimer->start());
    REQUIRE(reclaimer->start());  // the one that runs serves this wish too
    const Fd helper(::accept(listener->get(), nullptr, nullptr));
    REQUIRE(helper.valid());
    CHECK_FALSE(reclaimer->take_done());
    const size_t half = answer.text.size() / 2;
    REQUIRE(::write(helper.get(), answer.text.data(), half) == static_cast<ssize_t>(half));
    if (answer.text.size() < budget::kReclaimAnswerMax) CHECK_FALSE(reclaimer->take_done());
    REQUIRE(::write(helper.get(), answer.text.data() + half, answer.text.size() - half) ==
            static_cast<ssize_t>(answer.text.size() - half));
    REQUIRE(::shutdown(helper.get(), SHUT_RDWR) == 0);
    pollfd wait{.fd = reclaimer->fd(), .events = POLLIN, .revents = 0};
    REQUIRE(::poll(&wait, 1, 10'000) == 1);
    CHECK(reclaimer->take_done());
    CHECK_FALSE(reclaimer->take_done());
    CHECK(reclaimer->problem() == answer.problem);
    CHECK(reclaimer->fd() == -1);
  }
}

}  // namespace
}  // namespace tandem::service
