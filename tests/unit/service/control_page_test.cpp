// The control page as tandemd writes it and as the guard's half reads it, and the floors of a box.
#include "service/control_page.h"

#include <fcntl.h>
#include <unistd.h>

#include "service/memory_floors.h"
#include "service/spawn.h"
#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

using budget::GuardTenant;

GuardTenant read_tenant(budget::GuardPage& page, budget::Role role) {
  GuardTenant tenant;
  REQUIRE(page.tenant(role).read(tenant));
  return tenant;
}

TEST_CASE("the page names a process by pid, start and user, and forgets it") {
  TempDir dir;
  auto control = ControlPage::open(dir.path());
  REQUIRE(control.ok());
  auto page = budget::map_guard_page(budget::guard_page_path(dir.path()));  // as the guard maps it
  REQUIRE(page.ok());
  (*control)->beat(77);
  CHECK((*page)->tandemd_ms.load() == 77);
  (*control)->set_tenant(budget::Role::optional_model, ::getpid(), true);
  GuardTenant seen = read_tenant(**page, budget::Role::optional_model);
  CHECK(seen.pid == ::getpid());
  CHECK(seen.start_ticks == process_start_ticks(::getpid()).value());
  CHECK(seen.uid == process_uid(::getpid()).value());
  CHECK(seen.loading == 1);
  CHECK(read_tenant(**page, budget::Role::default_model).pid == 0);
  (*control)->set_tenant(budget::Role::optional_model, ::getpid(), false);
  seen = read_tenant(**page, budget::Role::optional_model);
  CHECK(seen.pid == ::getpid());
  CHECK(seen.loading == 0);
  // A tandemd that comes after a kill -9 does not vouch for what the last one wrote.
  auto next = ControlPage::open(dir.path());
  REQUIRE(next.ok());
  CHECK(read_tenant(**page, budget::Role::optional_model).pid == 0);
}

TEST_CASE("only a young report of the guard counts") {
  TempDir dir;
  auto control = ControlPage::open(dir.path());
  auto page = budget::map_guard_page(budget::guard_page_path(dir.path()));
  REQUIRE(control.ok());
  REQUIRE(page.ok());
  CHECK_FALSE((*control)->report(1000).has_value());
  (*page)->report.write({.level = 3, .sampled_ms = 1000});
  const auto report = (*control)->report(2500);
  REQUIRE(report.has_value());
  CHECK(report->level == 3);
  CHECK_FALSE((*control)->report(3001).has_value());
}

TEST_CASE("a file that is no page is refused, a page that was made half is finished") {
  TempDir dir;
  const std::string path = budget::guard_page_path(dir.path());
  std::ofstream(path) << "something else";
  const auto refused = ControlPage::open(dir.path());
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::corrupt);
  std::ofstream(path) << std::string(budget::kGuardPageBytes, '\0');
  CHECK(ControlPage::open(dir.path()).ok());
  CHECK(ControlPage::open(dir.path()).ok());
}

TEST_CASE("the page follows an engine from its launch to its end") {
  TempDir dir;  // the page outlives the supervisor that writes it
  auto control = ControlPage::open(dir.path());
  auto page = budget::map_guard_page(budget::guard_page_path(dir.path()));
  World world("load_ms 100\n");
  REQUIRE(control.ok());
  REQUIRE(page.ok());
  world.page = control->get();
  world.begin();
  bool was_loading = false;
  REQUIRE(world.until([&] {
    const GuardTenant seen = read_tenant(**page, budget::Role::default_model);
    was_loading = was_loading || (seen.pid == world.status().pid && seen.loading == 1);
    return world.state() == ModelState::ready;
  }));
  CHECK(was_loading);
  REQUIRE(world.until_ready(1));
  GuardTenant seen = read_tenant(**page, budget::Role::default_model);
  CHECK(seen.pid == world.status().pid);
  CHECK(seen.loading == 0);
  CHECK(::getpgid(seen.pid) == seen.pid);  // the guard signals its group
  CHECK(read_tenant(**page, budget::Role::optional_model).pid == world.status(1).pid);
  world.kill_engine(1);
  REQUIRE(world.until([&] { return read_tenant(**page, budget::Role::optional_model).pid == 0; }));
  CHECK(world.status(1).pid != seen.pid);
}

TEST_CASE("floors follow the box, and the configuration where it says something") {
  const int64_t gib = budget::kGiB;
  CHECK(memory_floors({}, 121 * gib + 700 * budget::kMiB).value().yellow_leave == 24 * gib);
  const auto set = memory_floors({.yellow_bytes = 10 * gib, .floor_bytes = 13 * gib}, 121 * gib);
  REQUIRE_FALSE(set.ok());  // orange is 12 GiB here
  CHECK(set.error().message.find("orange is 12288 MiB, yellow is 10240 MiB") != std::string::npos);
  const auto all = memory_floors({.yellow_bytes = 10 * gib, .orange_bytes = 6 * gib, .red_bytes = 4 * gib,
                                  .black_bytes = 2 * gib, .floor_bytes = 11 * gib},
                                 121 * gib);
  REQUIRE(all.ok());
  CHECK(all->yellow_enter == 10 * gib);
  CHECK(all->yellow_leave == 11 * gib);
  CHECK(all->orange_leave == 6 * gib / 100 * 133);
  CHECK(all->black_leave == 4 * gib);
  // The floor may not be below what enters yellow: an accepted plan would idle on its edge.
  CHECK_FALSE(memory_floors({.floor_bytes = 19 * gib}, 121 * gib).ok());
  // Tiny values, as tests use them.
  CHECK(memory_floors({.yellow_bytes = 4, .orange_bytes = 3, .red_bytes = 2, .black_bytes = 1}, 24 * gib).ok());
}

}  // namespace
}  // namespace tandem::service
