// The platform of LeaseContender over a lease page: a process-shared futex, and the neighbour's pidfd.
// A wait ends after 3 ms at the latest, so that a holder's death is seen well within 10 ms whatever
// it died at; a wake that a dying process did not send costs no more than that either.
//
// One per tenant, on its one thread. A neighbour's pidfd is opened when its identity on the page changes
// and checked against its start time, so that a later process of the same number is not taken for it.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/fd.h"
#include "base/lease/page.h"

namespace tandem {

class LeasePagePlatform {
 public:
  // A bypass is the right of the default model (tenant 0), never before this much time: a holder that was
  // only not scheduled is no broken one.
  static constexpr int64_t kOverdueLeastNs = 20'000'000;
  static constexpr int64_t kOverduePredictions = 10;
  static constexpr std::chrono::microseconds kSpin{20};
  static constexpr std::chrono::milliseconds kWaitMax{3};

  LeasePagePlatform(LeasePage& page, int self) : page_(page), self_(self) {}

  uint32_t load() { return page_.word.load(); }
  bool cas(uint32_t& expected, uint32_t desired) {
    return page_.word.compare_exchange_strong(expected, desired);
  }
  bool spin_while(uint32_t word);
  void wait(uint32_t word);
  void wake(int tenant);
  bool dead(int tenant);
  bool overdue(uint32_t word);

  // A hint: not for deciding who holds.
  [[nodiscard]] uint32_t glance() const { return page_.word.load(std::memory_order_relaxed); }

 private:
  struct Peer {
    uint64_t identity = 0;
    Fd pidfd;  // invalid: known to be dead
  };
  // The unit that this tenant waits for, as first seen.
  struct Watched {
    uint32_t epoch = 0;
    uint64_t units = 0;
    int64_t since_ns = 0;  // 0: none
  };

  LeasePage& page_;
  const int self_;
  Peer peers_[kLeaseTenants];
  Watched watched_;
};

// Of the monotonic clock.
int64_t lease_now_ns();

}  // namespace tandem
