// DeviceLease between two threads that play both engines' loops over one page. Units are spins of measured length.
#include "engine/run/device_lease.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

namespace tandem::engine {
namespace {

constexpr int64_t kUs = 1'000;

struct Board {
  std::string folder;
  LeasePageMapping page;

  Board() {
    std::string made = (std::filesystem::temp_directory_path() / "tandem-lease-XXXXXX").string();
    REQUIRE(::mkdtemp(made.data()) != nullptr);
    folder = made;
    auto mapped = make_lease_page(path());
    REQUIRE(mapped.ok());
    page = std::move(*mapped);
    page->floor_permille.store(150);
    page->quantum_ns.store(300 * kUs);
  }
  ~Board() { std::filesystem::remove_all(folder); }
  [[nodiscard]] std::string path() const { return lease_page_path(folder); }
  [[nodiscard]] std::unique_ptr<DeviceLease> attach(budget::Role role) const {
    auto lease = DeviceLease::attach(path(), role);
    REQUIRE(lease.ok());
    return std::move(*lease);
  }
  [[nodiscard]] uint32_t word() const { return page->word.load(); }
};

void spin(int64_t ns) {
  const int64_t until = lease_now_ns() + ns;
  while (lease_now_ns() < until) {
  }
}

void run_step(DeviceLease& lease, int units, int64_t unit_ns, int64_t host_ns) {
  lease.begin_step();
  for (int unit = 0; unit < units; ++unit) {
    if (unit > 0) lease.end_unit();
    lease.begin_unit(unit_ns);
    spin(unit_ns);
  }
  lease.end_step(true);
  spin(host_ns);
}

protocol::Stats stats_of(const DeviceLease& lease) {
  protocol::Stats stats;
  lease.add_stats(stats);
  return stats;
}

}  // namespace

TEST_CASE("device lease: a place on the page has one process at a time") {
  const Board board;
  CHECK(DeviceLease::attach(board.folder + "/none", budget::Role::default_model).error().code == Errc::not_found);
  auto first = board.attach(budget::Role::default_model);
  CHECK(DeviceLease::attach(board.path(), budget::Role::default_model).error().code == Errc::exhausted);
  const auto beside = board.attach(budget::Role::optional_model);
  first.reset();
  CHECK(DeviceLease::attach(board.path(), budget::Role::default_model).ok());
}

TEST_CASE("device lease: what a dead process left on the page is cleared") {
  const Board board;
  LeaseTenant& left = board.page->tenants[1];
  left.served_ns.store(77);
  left.step_begun_ns.store(1);
  left.waits.store(5);
  board.page->word.store(lease_word::holder_bits(1) | lease_word::active(1));
  const auto lease = board.attach(budget::Role::optional_model);
  CHECK(lease_word::holder(board.word()) == kLeaseNobody);
  CHECK((board.word() & lease_word::active(1)) == 0);
  CHECK(stats_of(*lease).lease_waits == 0);
  CHECK(left.served_ns.load() == 0);
  CHECK(left.step_begun_ns.load() == 0);
}

TEST_CASE("device lease: held from the first unit until there is nothing to do") {
  const Board board;
  const auto lease = board.attach(budget::Role::default_model);
  CHECK(lease_word::holder(board.word()) == kLeaseNobody);
  lease->begin_step();
  CHECK(lease_word::holder(board.word()) == 0);
  CHECK(board.page->tenants[0].step_begun_ns.load() > 0);
  lease->begin_unit(100 * kUs);
  spin(100 * kUs);
  lease->end_step(true);
  CHECK(lease_word::holder(board.word()) == 0);  // sampling needs the cores as well
  CHECK(board.page->tenants[0].step_begun_ns.load() == 0);
  const int64_t step_us = stats_of(*lease).lease_solo_step_us;
  CHECK(step_us >= 100);
  spin(500 * kUs);
  lease->between_requests();
  lease->go_idle();
  CHECK(lease_word::holder(board.word()) == kLeaseNobody);
  CHECK((board.word() & lease_word::active(0)) == 0);
  CHECK(stats_of(*lease).lease_solo_step_us == step_us);  // of the device only
  CHECK(stats_of(*lease).lease_served_us >= 600);         // what was held, all
  CHECK(stats_of(*lease).lease_waits == 0);
  lease->go_idle();
}

TEST_CASE("device lease: nobody computes beside the loop's own work") {
  const Board board;
  const auto first = board.attach(budget::Role::default_model);
  run_step(*first, 1, 100 * kUs, 0);
  std::atomic<bool> ran{false};
  std::jthread neighbour([&] {
    const auto second = board.attach(budget::Role::optional_model);
    run_step(*second, 1, 10 * kUs, 0);
    ran = true;
    second->go_idle();
  });
  while ((board.word() & lease_word::waiting(1)) == 0 && !ran) std::this_thread::yield();
  spin(2000 * kUs);
  CHECK_FALSE(ran);
  first->go_idle();
  neighbour.join();
  CHECK(ran);
}

TEST_CASE("device lease: the quantum is the rule's, else what suits the default model's clients, within bounds") {
  const Board board;
  const auto first = board.attach(budget::Role::default_model);
  const auto second = board.attach(budget::Role::optional_model);
  CHECK(second->unit_max_ns() == 300 * kUs);  // set by the configuration
  board.page->quantum_ns.store(0);
  CHECK(second->unit_max_ns() == 3000 * kUs);
  board.page->tenants[0].solo_step_ns.store(10'000 * kUs);
  CHECK(second->unit_max_ns() == 2000 * kUs);
  board.page->tenants[0].quantum_ns.store(900 * kUs);
  CHECK(second->unit_max_ns() == 900 * kUs);
  board.page->tenants[0].quantum_ns.store(int64_t{1} << 60);  // of a page that an earlier engine wrote
  CHECK(second->unit_max_ns() == 2000 * kUs);
  board.page->tenants[0].quantum_ns.store(1);
  CHECK(second->unit_max_ns() == 200 * kUs);
}

TEST_CASE("device lease: late tokens beside the neighbour make units shorter") {
  const Board board;
  board.page->quantum_ns.store(0);
  const auto first = board.attach(budget::Role::default_model);
  for (int step = 0; step < 70; ++step) run_step(*first, 1, 200 * kUs, 0);
  const int64_t alone_ns = first->unit_max_ns();
  board.page->word.fetch_or(lease_word::active(1));  // the neighbour has work, as far as can be seen
  for (int step = 0; step < 70; ++step) run_step(*first, 1, 200 * kUs, 1500 * kUs);
  CHECK(board.page->tenants[0].quantum_ns.load() > 0);
  board.page->tenants[0].solo_step_ns.store(50'000 * kUs);
  run_step(*first, 1, 200 * kUs, 0);
  CHECK(first->unit_max_ns() == 3000 * kUs * 750 / 1000);
  CHECK(alone_ns <= 3000 * kUs);
  first->go_idle();
}

TEST_CASE("device lease: beside a busy default model the optional one gets its floor, in single units") {
  const Board board;
  std::atomic<bool> stop{false};
  std::atomic<int> order{0};
  std::vector<int> ran(200'000, 0);  // which model, unit by unit
  protocol::Stats stats[2];
  const auto play = [&](int tenant, budget::Role role, int64_t host_ns) {
    const auto lease = board.attach(role);
    while (!stop) {
      lease->begin_step();
      for (int unit = 0; unit < 8; ++unit) {
        if (unit > 0) lease->end_unit();
        lease->begin_unit(lease->unit_max_ns());
        ran[static_cast<size_t>(order.fetch_add(1)) % ran.size()] = tenant + 1;
        spin(300 * kUs);
      }
      lease->end_step(true);
      spin(host_ns);
    }
    lease->go_idle();
    stats[tenant] = stats_of(*lease);
  };
  {
    std::jthread first([&] { play(0, budget::Role::default_model, 100 * kUs); });
    std::jthread second([&] { play(1, budget::Role::optional_model, 100 * kUs); });
    while (order < 3000) std::this_thread::yield();
    stop = true;
  }
  const auto mine = static_cast<double>(stats[0].lease_served_us);
  const auto other = static_cast<double>(stats[1].lease_served_us);
  CHECK(other / (mine + other) == Approx(0.15).margin(0.04));
  CHECK(stats[0].lease_hand_overs > 100);
  CHECK(stats[1].lease_hand_overs > 100);
  CHECK(stats[1].lease_bypassed == 0);
  // The beginning and the end, where one was there alone, aside.
  int in_a_row = 0;
  int pairs = 0;
  for (int i = 200; i < 2800; ++i) {
    in_a_row = ran[static_cast<size_t>(i)] == 2 ? in_a_row + 1 : 0;
    if (in_a_row > 1) ++pairs;
  }
  CHECK(pairs < 26);  // a core that was taken away in a unit of the default model earns more than one at once
}

}  // namespace tandem::engine
