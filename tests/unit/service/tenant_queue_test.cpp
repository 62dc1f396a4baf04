#include "service/tenant_queue.h"

#include <set>

#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace tandem::service {
namespace {

using policies::QueueClass;
using std::chrono::milliseconds;
using Verdict = ModelQueue::Verdict;

// Keeps what the queue tells it.
class Ear final : public TicketSink {
 public:
  void on_turn(uint64_t ticket) override { turns.push_back(ticket); }
  void on_refused(uint64_t ticket, Error error) override { refused.emplace_back(ticket, std::move(error)); }
  std::vector<uint64_t> turns;
  std::vector<std::pair<uint64_t, Error>> refused;
};

struct Desk {
  explicit Desk(int64_t slots, int64_t queue_max, int64_t key_share_percent = 100)
      : queue({.model = "alpha", .slots = slots, .queue_max = queue_max, .key_share_percent = key_share_percent},
              clock) {}

  ModelQueue::Entered enter(int64_t count, const std::string& key = "", SubmitTerms terms = {}) {
    terms.key_id = key;
    const uint64_t first = next;
    next += static_cast<uint64_t>(count);
    auto entered = queue.enter({.first_ticket = first, .count = count, .prompt_tokens = 10, .terms = terms}, ear);
    if (entered.verdict == Verdict::admitted) {
      for (uint64_t ticket = first; ticket < next; ++ticket) open.insert(ticket);
    }
    for (const uint64_t ticket : entered.turns) running.insert(ticket);
    return entered;
  }
  Verdict admit(int64_t count, const std::string& key = "") { return enter(count, key).verdict; }
  void end(uint64_t ticket, int64_t service_us = 0) {
    queue.end(ticket, {.service_us = service_us});
    open.erase(ticket);
    running.erase(ticket);
    for (const uint64_t turn : std::exchange(ear->turns, {})) running.insert(turn);
  }
  void end_one(int64_t service_us = 0) { end(*running.begin(), service_us); }

  FakeClock clock;
  ModelQueue queue;
  std::shared_ptr<Ear> ear = std::make_shared<Ear>();
  std::set<uint64_t> open;
  std::set<uint64_t> running;
  uint64_t next = 1;
};

TEST_CASE("slots change for what comes: what was admitted stays") {
  Desk desk(2, 1);
  REQUIRE(desk.admit(3) == Verdict::admitted);
  CHECK(desk.admit(1) == Verdict::full);
  desk.queue.set_slots(4);
  CHECK(desk.queue.slots() == 4);
  CHECK(desk.admit(2) == Verdict::admitted);
  CHECK(desk.admit(1) == Verdict::full);
  desk.queue.set_slots(1);
  CHECK(desk.queue.open() == 5);
  for (int i = 0; i < 3; ++i) desk.end_one();
  CHECK(desk.admit(1) == Verdict::full);  // 1 slot and 1 place in the queue are taken
  desk.end_one();
  CHECK(desk.admit(1) == Verdict::admitted);
}

TEST_CASE("the wait is the mean service time times the place in the queue over the slots") {
  Desk desk(2, 100);
  REQUIRE(desk.admit(12) == Verdict::admitted);
  CHECK(desk.queue.wait_s() == 1);  // nothing measured yet
  desk.end_one(8'000'000);          // 8 s; 11 are open, 9 of them wait, the next is tenth
  CHECK(desk.queue.wait_s() == 40);
  for (int i = 0; i < 11; ++i) desk.end_one(8'000'000);
  CHECK(desk.queue.wait_s() == 4);
  CHECK(desk.queue.open() == 0);
  CHECK(desk.admit(103) == Verdict::full);
}

TEST_CASE("a passing limit: what runs stays, the queue shrinks, and the words differ") {
  Desk desk(4, 8);
  REQUIRE(desk.admit(10) == Verdict::admitted);
  CHECK(desk.running.size() == 5);  // four slots and one ahead
  desk.queue.set_slots_max(1);      // and a quarter of the queue
  CHECK(desk.queue.slots() == 1);
  CHECK(desk.queue.slots_of_its_own() == 4);
  CHECK(desk.queue.open() == 10);
  CHECK(desk.admit(1) == Verdict::full_for_now);
  CHECK(desk.admit(3) == Verdict::full);  // 13 are more than ever fit
  for (int i = 0; i < 4; ++i) desk.end_one(8'000'000);
  CHECK(desk.running.size() == 1);  // nothing new until one is left, and no look-ahead
  for (int i = 0; i < 4; ++i) desk.end_one(8'000'000);
  CHECK(desk.queue.wait_s() == 16);  // two are open, one slot: the next is second
  CHECK(desk.admit(1) == Verdict::admitted);
  CHECK(desk.admit(1) == Verdict::full_for_now);
  desk.queue.set_slots_max(ModelQueue::kNoLimit);
  CHECK(desk.queue.slots() == 4);
  CHECK(desk.admit(9) == Verdict::admitted);
  CHECK(desk.admit(1) == Verdict::full);
}

TEST_CASE("pacing: turns are held back, down to none, and the queue keeps its size") {
  Desk desk(4, 8);
  desk.queue.set_turns_max(0);
  REQUIRE(desk.admit(3) == Verdict::admitted);
  CHECK(desk.running.empty());
  CHECK(desk.queue.figures().waiting[static_cast<size_t>(QueueClass::interactive)] == 3);
  CHECK(desk.queue.slots() == 4);
  desk.queue.set_turns_max(1);
  for (const uint64_t turn : std::exchange(desk.ear->turns, {})) desk.running.insert(turn);
  CHECK(desk.running.size() == 1);
  CHECK(desk.admit(6) == Verdict::admitted);
  CHECK(desk.admit(1) == Verdict::key_full);  // eight wait
  desk.end_one(1'000'000);
  CHECK(desk.running.size() == 1);
  desk.queue.set_turns_max(ModelQueue::kNoLimit);
  CHECK(desk.ear->turns.size() == 4);  // four slots and one ahead, and one of them runs
}

TEST_CASE("one key cannot fill the queue; what finds a slot does not count") {
  Desk desk(2, 8, 50);
  CHECK(desk.queue.key_max() == 4);
  CHECK(desk.admit(6, "a") == Verdict::admitted);  // two run, one is ahead, three wait
  CHECK(desk.admit(1, "a") == Verdict::admitted);
  CHECK(desk.admit(1, "a") == Verdict::key_full);
  CHECK(desk.admit(3, "b") == Verdict::admitted);
  CHECK(desk.admit(1, "b") == Verdict::full);
  const QueueFigures figures = desk.queue.figures();
  CHECK(figures.refused_key == 1);
  CHECK(figures.refused_full == 1);
  CHECK(figures.waiting[0] == 7);
}

TEST_CASE("a key with one request stands before the hundreds of another") {
  Desk desk(1, 400);
  REQUIRE(desk.admit(300, "many") == Verdict::admitted);
  for (int i = 0; i < 5; ++i) desk.end_one(1'000'000);
  const auto one = desk.enter(1, "one");
  // Lifted to the other's counter; of equal ones the older request goes first.
  CHECK(one.place.position == 2);
  CHECK(one.place.wait_ms == 2000);
  const uint64_t ticket = desk.next - 1;
  for (int i = 0; i < 2; ++i) desk.end_one(1'000'000);
  CHECK(desk.running.contains(ticket));
}

TEST_CASE("a waiting ticket that leaves frees its place, once; repeated and unknown ends are nothing") {
  Desk desk(1, 1);
  REQUIRE(desk.admit(1) == Verdict::admitted);
  REQUIRE(desk.admit(1) == Verdict::admitted);  // the look-ahead
  CHECK(desk.admit(1) == Verdict::full);
  desk.end(2);
  desk.queue.end(2, {});
  desk.queue.end(77, {});
  CHECK(desk.queue.open() == 1);
  CHECK(desk.admit(1) == Verdict::admitted);
}

TEST_CASE("a deadline that passed in the queue is one refusal with the numbers, and no turn") {
  Desk desk(1, 8);
  REQUIRE(desk.admit(2) == Verdict::admitted);
  SubmitTerms terms;
  terms.deadline = desk.clock.now() + milliseconds(1200);
  REQUIRE(desk.enter(1, "late", terms).verdict == Verdict::admitted);
  REQUIRE(desk.admit(1) == Verdict::admitted);
  desk.clock.advance(milliseconds(1203));
  desk.end_one();
  REQUIRE(desk.ear->refused.size() == 1);
  CHECK(desk.ear->refused[0].first == 3);
  CHECK(desk.ear->refused[0].second.code == Errc::cancelled);
  CHECK(desk.ear->refused[0].second.message ==
        "the deadline passed after 1203 ms in the queue of model alpha, where 1 still wait");
  CHECK(desk.running.contains(4));
  CHECK(desk.queue.figures().expired[0] == 1);
}

TEST_CASE("when the model goes away those that wait are told, those under way are not") {
  Desk desk(1, 8);
  REQUIRE(desk.admit(5) == Verdict::admitted);
  desk.queue.refuse_waiting(make_error(Errc::unavailable, "draining"));
  CHECK(desk.ear->refused.size() == 3);
  CHECK(desk.queue.open() == 2);
  CHECK(desk.queue.figures().left[0] == 3);
}

// Random arrivals, ends, departures and limits: never more under way than the slots and the look-ahead
// allow for new turns, never an idle slot while somebody waits, every ticket ends once.
TEST_CASE("the books hold under any order of events") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    tests::Random random(seed);
    Desk desk(3, 12, 60);
    const std::string keys[] = {"a", "b", "c"};
    for (int step = 0; step < 2000; ++step) {
      switch (random.below(4)) {
        case 0:
        case 1: {
          SubmitTerms terms;
          if (random.below(3) == 0) terms.queue_class = QueueClass::batch;
          (void)desk.enter(static_cast<int64_t>(1 + random.below(3)), keys[random.below(3)], terms);
          break;
        }
        case 2:
          if (!desk.running.empty()) desk.end_one(static_cast<int64_t>(random.below(1000)));
          break;
        default:
          if (!desk.open.empty()) desk.end(*std::next(desk.open.begin(), static_cast<int64_t>(random.below(desk.open.size()))));
      }
      const QueueFigures figures = desk.queue.figures();
      const int64_t waiting = figures.waiting[0] + figures.waiting[1];
      INFO("seed " << seed << " step " << step);
      REQUIRE(figures.under_way == static_cast<int64_t>(desk.running.size()));
      REQUIRE(figures.under_way + waiting == static_cast<int64_t>(desk.open.size()));
      REQUIRE(figures.under_way <= 4);
      REQUIRE((waiting == 0 || figures.under_way == 4));
      REQUIRE(desk.queue.open() <= 15);
    }
  }
}

}  // namespace
}  // namespace tandem::service
