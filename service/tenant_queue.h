// ModelQueue: the bounded, fair queue in front of one model's engine. A ticket is one choice of one request
// (its id is the engine's request id). Tickets enter all or none, wait in the order of policies/fair_queue.h,
// and get their turn while the engine has a slot for them: at most slots + kLookAhead are under way in the
// engine, so that it has work at the end of an answer and the order stays ours. At most slots + queue_max
// are open; of the places to wait, one key has a share.
//
// Nothing here waits or has a thread: whoever frees a slot hands out turns, and the sink's on_turn() wakes
// the ticket's own worker, which sends its submit itself. A ticket ends once: end() is for every state, and
// harmless when repeated.
//
// Any thread. Sinks are called without the lock held.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "policies/fair_queue.h"
#include "service/generation.h"

namespace tandem::service {

// A ticket's owner. shared: it may end on one thread while another hands it a turn.
class TicketSink {
 public:
  virtual ~TicketSink() = default;
  // The submit may be sent now.
  virtual void on_turn(uint64_t ticket) = 0;
  // It will have no turn; end() has happened.
  virtual void on_refused(uint64_t ticket, Error error) = 0;
};

class ModelQueue {
 public:
  static constexpr int64_t kNoLimit = int64_t{1} << 20;
  static constexpr int64_t kLookAhead = 1;
  // full_for_now: it is only full because of set_slots_max(). key_full: the key has its share.
  enum class Verdict : uint8_t { admitted, full, full_for_now, key_full };

  struct Options {
    std::string model;
    int64_t slots = 1;
    int64_t queue_max = 0;
    int64_t key_share_percent = 100;  // of queue_max, rounded up
    double batch_floor = 0.1;
  };
  ModelQueue(Options options, const Clock& clock);

  struct Entry {
    uint64_t first_ticket = 0;
    int64_t count = 1;
    int64_t prompt_tokens = 0;
    const SubmitTerms& terms;
  };
  struct Entered {
    Verdict verdict = Verdict::admitted;
    std::vector<uint64_t> turns;  // of these tickets, that may be sent at once: no on_turn() comes
    QueuePlace place;             // of the first that waits
  };
  [[nodiscard]] Entered enter(const Entry& entry, const std::shared_ptr<TicketSink>& sink);

  // A token of a ticket's answer was made.
  void charge(uint64_t ticket, int64_t answer_tokens);
  struct Ended {
    int64_t cached_tokens = 0;
    int64_t service_us = 0;  // in a slot; > 0 feeds the estimate
  };
  // The ticket is gone, waiting or not. Returns how long it waited for its turn.
  std::chrono::microseconds end(uint64_t ticket, Ended ended);
  // All that wait end with `error`; those in the engine are not touched.
  void refuse_waiting(const Error& error);

  // The model's own slots, >= 1 (`budget set`).
  void set_slots(int64_t slots);
  // A passing limit on top (shedding), >= 1; the queue shrinks in proportion.
  void set_slots_max(int64_t slots_max);

  // How many may be under way in the engine, whatever its slots; 0: nothing new (pacing). The queue keeps its size.
  void set_turns_max(int64_t turns_max);

  // Those that count now, and those that the model has when nothing limits it.
  [[nodiscard]] int64_t slots() const;
  [[nodiscard]] int64_t slots_of_its_own() const;
  [[nodiscard]] int64_t open() const;
  // Waiting places that one key may have.
  [[nodiscard]] int64_t key_max() const;
  // Expected wait of a ticket that came now behind all others, in seconds, >= 1.
  [[nodiscard]] int64_t wait_s() const;
  [[nodiscard]] QueueFigures figures() const;

 private:
  struct Ticket {
    std::shared_ptr<TicketSink> sink;
    SteadyTime entered{};
    SteadyTime turn{};  // when it got its turn
    bool has_turn = false;
    policies::QueueClass queue_class = policies::QueueClass::interactive;
  };
  struct Wake {
    std::shared_ptr<TicketSink> sink;
    uint64_t ticket = 0;
    std::optional<Error> error;
  };

  [[nodiscard]] int64_t slots_now() const TANDEM_REQUIRES(mutex_) { return std::min(slots_, slots_max_); }
  [[nodiscard]] Verdict judge(const Entry& entry) const TANDEM_REQUIRES(mutex_);
  // Expires, then hands out turns while there is room.
  void pump(std::vector<Wake>& wakes) TANDEM_REQUIRES(mutex_);
  [[nodiscard]] double wait_us(int64_t ahead) const TANDEM_REQUIRES(mutex_);
  [[nodiscard]] double hold_us() const TANDEM_REQUIRES(mutex_);
  void note_wait(policies::QueueClass queue_class, SteadyTime entered) TANDEM_REQUIRES(mutex_);
  static void wake(std::vector<Wake> wakes);

  const Options options_;
  const Clock& clock_;
  mutable Mutex mutex_;
  policies::FairQueue fair_ TANDEM_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, Ticket> tickets_ TANDEM_GUARDED_BY(mutex_);
  int64_t slots_ TANDEM_GUARDED_BY(mutex_);
  int64_t slots_max_ TANDEM_GUARDED_BY(mutex_) = kNoLimit;
  int64_t turns_max_ TANDEM_GUARDED_BY(mutex_) = kNoLimit;
  int64_t under_way_ TANDEM_GUARDED_BY(mutex_) = 0;
  double mean_hold_us_ TANDEM_GUARDED_BY(mutex_) = 0.0;  // of a slot, recent ones weigh more
  QueueFigures figures_ TANDEM_GUARDED_BY(mutex_);
};

}  // namespace tandem::service
