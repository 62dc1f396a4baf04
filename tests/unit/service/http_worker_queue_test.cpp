// The hand-over from the front to its workers.
#include "service/http/worker_queue.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <latch>
#include <string>
#include <thread>

#include "tests/unit/service/http_harness.h"

// After the product's headers: it replaces their CHECK.
#include "tests/support/catch.h"

namespace tandem::service {

TEST_CASE("front: the worker that went idle last is the next to work") {
  constexpr size_t kWorkers = 4;
  WorkerQueue queue(kWorkers);
  std::array<std::atomic<int>, kWorkers> served{};
  // Each worker holds its first request until all hold one: whatever the order in which the threads
  // start, all four are idle once nothing is in hand.
  std::latch started(kWorkers);
  std::vector<std::jthread> workers;
  for (size_t i = 0; i < kWorkers; ++i) {
    workers.emplace_back([&queue, &started, &count = served[i]] {
      WorkerQueue::Seat seat;
      while (queue.pop(seat).has_value()) {
        if (count++ == 0) started.arrive_and_wait();
      }
    });
  }
  const auto push = [&queue] {
    ReadyRequest request;
    return queue.try_push(request);
  };
  for (size_t i = 0; i < kWorkers; ++i) REQUIRE(push());
  REQUIRE(eventually([&] { return queue.in_hand() == 0; }));
  for (int i = 0; i < 200; ++i) {
    REQUIRE(push());
    REQUIRE(eventually([&] { return queue.in_hand() == 0; }));
  }
  int most = 0;
  int sum = 0;
  for (const auto& count : served) {
    most = std::max(most, count.load());
    sum += count.load();
  }
  CHECK(sum == 204);
  CHECK(most == 201);
  queue.close();
  workers.clear();
  CHECK_FALSE(push());
}

TEST_CASE("front: requests wait in order, up to the bound, and are drained on close") {
  WorkerQueue queue(2);
  const auto push = [&queue](const char* id) {
    ReadyRequest request;
    request.admission.request_id = id;
    const bool taken = queue.try_push(request);
    CHECK(request.admission.request_id.empty() == taken);
    return taken;
  };
  CHECK(push("first request"));
  CHECK(push("second request"));
  CHECK_FALSE(push("third request"));
  CHECK(queue.waiting() == 2);
  queue.close();
  WorkerQueue::Seat seat;
  CHECK(queue.pop(seat)->admission.request_id == "first request");
  CHECK(queue.in_hand() == 2);
  CHECK(queue.pop(seat)->admission.request_id == "second request");
  CHECK_FALSE(queue.pop(seat).has_value());
  CHECK(queue.in_hand() == 0);
}

}  // namespace tandem::service
