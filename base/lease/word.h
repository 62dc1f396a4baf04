// The lease's one word, and how a tenant takes it, waits for it and gives it on. A template over its
// platform (atomics, futex, spinning, who is dead), so that tests explore this very code with every
// interleaving and crash (tests/unit/base/lease_explorer_test.cpp); the real one is page_platform.h.
//
// Word: bits 0-1 holder + 1 (0: free), then per tenant 2 waiting, 2 asleep, 2 active; 24 bits epoch, which
// changes with the holder. Everything that may make a sleeper go on is in the word, so a sleeper whose
// reason is gone never falls asleep: FUTEX_WAIT compares the whole word.
//
// Rules: who holds the word runs on the device. The holder decides before it lets go (unit_end), and hands
// the word to the named next one; it is free only when nobody waits, or when the named one does not. Whoever waits looks for the holder's death before it sleeps and
// whenever the platform's wait ends, and breaks the lease of a dead one. A live holder may be bypassed: it
// finds out at its next unit_end. One Contender per tenant, one thread each.
#pragma once

#include <cstdint>

namespace tandem {

inline constexpr int kLeaseTenants = 2;
inline constexpr int kLeaseNobody = -1;

namespace lease_word {

constexpr uint32_t kHolderMask = 3;
constexpr int kEpochShift = 8;
constexpr uint32_t kEpochOne = 1U << kEpochShift;

constexpr int holder(uint32_t word) { return static_cast<int>(word & kHolderMask) - 1; }
constexpr uint32_t holder_bits(int tenant) { return static_cast<uint32_t>(tenant + 1); }
constexpr uint32_t waiting(int tenant) { return 1U << (2 + tenant); }
constexpr uint32_t asleep(int tenant) { return 1U << (4 + tenant); }
constexpr uint32_t active(int tenant) { return 1U << (6 + tenant); }
constexpr uint32_t epoch(uint32_t word) { return word >> kEpochShift; }
constexpr uint32_t bits_of(int tenant) {
  return waiting(tenant) | asleep(tenant) | active(tenant);
}
// Of `word` with another holder (or none), which waits no longer.
constexpr uint32_t with_holder(uint32_t word, int tenant) {
  word = (word & ~kHolderMask) + kEpochOne;
  if (tenant == kLeaseNobody) return word;
  word |= holder_bits(tenant) | active(tenant);
  return word & ~(waiting(tenant) | asleep(tenant));
}
// Of `word` without anything of a tenant whose process is gone.
constexpr uint32_t without(uint32_t word, int tenant) {
  if (holder(word) == tenant) word = (word & ~kHolderMask) + kEpochOne;
  return word & ~bits_of(tenant);
}

}  // namespace lease_word

// What a platform is:
//   uint32_t load();
//   bool cas(uint32_t& expected, uint32_t desired);  // as compare_exchange_strong, sequentially consistent
//   bool spin_while(uint32_t word);                  // up to 20 us; true when the word changed
//   void wait(uint32_t word);                        // sleeps while the word is this, at most a few ms
//   void wake(int tenant);                           // whoever sleeps as this tenant
//   bool dead(int tenant);                           // its process has ended, or there is none
//   bool overdue(uint32_t word);                     // this holder may be bypassed by this tenant
template <typename Platform>
class LeaseContender {
 public:
  enum class Taken : uint8_t { at_once, waited, broke, bypassed };
  enum class UnitEnd : uint8_t {
    kept,    // go on
    given,   // handed over or freed: acquire before the next unit
    lost,    // somebody bypassed this tenant meanwhile: acquire before the next unit
  };

  LeaseContender(Platform& platform, int self) : platform_(platform), self_(self) {}
  LeaseContender(const LeaseContender&) = delete;
  LeaseContender& operator=(const LeaseContender&) = delete;

  // Returns with the word held. may_take(word): a free word may be taken by this tenant now.
  template <typename MayTake>
  Taken acquire(MayTake may_take) {
    uint32_t word = platform_.load();
    if (lease_word::holder(word) == kLeaseNobody && may_take(word) && take(word)) {
      return Taken::at_once;
    }
    while (true) {
      word = platform_.load();
      const int holder = lease_word::holder(word);
      if (holder == self_) {  // handed to this tenant
        epoch_ = lease_word::epoch(word);
        return Taken::waited;
      }
      if (holder == kLeaseNobody && may_take(word)) {
        if (take(word)) return Taken::waited;
        continue;
      }
      if ((word & lease_word::waiting(self_)) == 0) {
        platform_.cas(word, word | lease_word::waiting(self_) | lease_word::active(self_));
        continue;
      }
      if ((word & lease_word::asleep(self_)) == 0) {
        if (platform_.spin_while(word)) continue;
        if (const auto ended = bury(word)) return *ended;
        platform_.cas(word, word | lease_word::asleep(self_));
        continue;
      }
      platform_.wait(word);
      if (const auto ended = bury(word)) return *ended;
      if (holder != kLeaseNobody && platform_.overdue(word) && take(word)) return Taken::bypassed;
    }
  }

  // Between two units. turn(word) names who is next: this tenant keeps the word and wakes nobody; another one
  // that waits gets it; kLeaseNobody, or one that does not wait, frees it.
  template <typename Turn>
  UnitEnd unit_end(Turn turn) {
    // Who hands over parks at once: the next unit takes longer than any spin, and may need this core.
    const uint32_t own_bits = lease_word::waiting(self_) | lease_word::asleep(self_);
    uint32_t word = platform_.load();
    while (true) {
      if (lease_word::holder(word) != self_ || lease_word::epoch(word) != epoch_) {
        return UnitEnd::lost;
      }
      int next = turn(word);
      if (next == self_) return UnitEnd::kept;
      if (next != kLeaseNobody && (word & lease_word::waiting(next)) == 0) next = kLeaseNobody;
      if (!platform_.cas(word, lease_word::with_holder(word, next) | own_bits)) continue;
      if (next != kLeaseNobody && (word & lease_word::asleep(next)) != 0) platform_.wake(next);
      return UnitEnd::given;
    }
  }

  // Nothing to do until further notice: whoever waits goes on. Holding or not.
  void go_idle() {
    uint32_t word = platform_.load();
    while (true) {
      uint32_t wanted = word & ~lease_word::bits_of(self_);
      const int holder = lease_word::holder(word);
      int next = kLeaseNobody;
      if (holder == self_ || holder == kLeaseNobody) {
        next = waiter(word);
        if (next != kLeaseNobody || holder == self_) wanted = lease_word::with_holder(wanted, next);
      }
      if (wanted == word) return;
      if (!platform_.cas(word, wanted)) continue;
      if (next != kLeaseNobody && (word & lease_word::asleep(next)) != 0) platform_.wake(next);
      return;
    }
  }

  // Nobody of this tenant's earlier processes holds or waits any more. Before its first acquire.
  void clear_own() {
    uint32_t word = platform_.load();
    while (lease_word::without(word, self_) != word) {
      const uint32_t before = word;
      if (!platform_.cas(word, lease_word::without(word, self_))) continue;
      const int next = waiter(before);
      if (next != kLeaseNobody && (before & lease_word::asleep(next)) != 0) platform_.wake(next);
      return;
    }
  }

 private:
  // What became of the lease of a dead tenant, in a form that converts to bool.
  struct Burial {
    bool taken = false;
    explicit operator bool() const { return taken; }
    Taken operator*() const { return Taken::broke; }
  };

  bool take(uint32_t& word) {
    const uint32_t wanted = lease_word::with_holder(word, self_);
    if (!platform_.cas(word, wanted)) return false;
    epoch_ = lease_word::epoch(wanted);
    return true;
  }

  // `word` was read before the death was seen: a process that came since has changed it.
  Burial bury(uint32_t word) {
    uint32_t wanted = word;
    for (int tenant = 0; tenant < kLeaseTenants; ++tenant) {
      const bool shows = (word & lease_word::bits_of(tenant)) != 0 || lease_word::holder(word) == tenant;
      if (tenant != self_ && shows && platform_.dead(tenant)) {
        wanted = lease_word::without(wanted, tenant);
      }
    }
    if (wanted == word || lease_word::holder(wanted) != kLeaseNobody) return {};
    wanted = lease_word::with_holder(wanted, self_);
    if (!platform_.cas(word, wanted)) return {};
    epoch_ = lease_word::epoch(wanted);
    return {.taken = true};
  }

  [[nodiscard]] int waiter(uint32_t word) const {
    for (int tenant = 0; tenant < kLeaseTenants; ++tenant) {
      if (tenant != self_ && (word & lease_word::waiting(tenant)) != 0) return tenant;
    }
    return kLeaseNobody;
  }

  Platform& platform_;
  const int self_;
  uint32_t epoch_ = 0;
};

}  // namespace tandem
