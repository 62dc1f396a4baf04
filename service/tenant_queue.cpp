#include "service/tenant_queue.h"

#include <cmath>
#include <utility>

#include "base/check.h"

namespace tandem::service {
namespace {

using std::chrono::duration_cast;
using std::chrono::microseconds;

constexpr int64_t kWaitMaxS = 600;
constexpr double kMeanWeight = 0.1;  // of the newest time in a slot

int64_t us_between(SteadyTime from, SteadyTime to) {
  return duration_cast<microseconds>(to - from).count();
}

int64_t deadline_us(SteadyTime deadline) {
  if (deadline == SteadyTime::max()) return policies::FairQueue::kNoDeadline;
  return us_between(SteadyTime{}, deadline);
}

}  // namespace

ModelQueue::ModelQueue(Options options, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      fair_({.prices = {}, .batch_floor = options_.batch_floor}),
      slots_(options_.slots) {
  CHECK(slots_ >= 1 && options_.queue_max >= 0);
}

int64_t ModelQueue::key_max() const {
  return (options_.queue_max * options_.key_share_percent + 99) / 100;
}

ModelQueue::Verdict ModelQueue::judge(const Entry& entry) const {
  const int64_t slots = slots_now();
  const int64_t queue = slots < slots_ ? options_.queue_max * slots / slots_ : options_.queue_max;
  const auto open = static_cast<int64_t>(tickets_.size());
  if (open + entry.count > slots + queue) {
    return open + entry.count > slots_ + options_.queue_max ? Verdict::full : Verdict::full_for_now;
  }
  // What finds a slot at once does not wait.
  const int64_t wait = entry.count - std::clamp<int64_t>(slots - open, 0, entry.count);
  const auto have = static_cast<int64_t>(fair_.waiting_of(entry.terms.key_id));
  return wait > 0 && have + wait > key_max() ? Verdict::key_full : Verdict::admitted;
}

ModelQueue::Entered ModelQueue::enter(const Entry& entry, const std::shared_ptr<TicketSink>& sink) {
  CHECK(entry.count >= 1);
  Entered entered;
  std::vector<Wake> wakes;
  {
    MutexLock lock(mutex_);
    entered.verdict = judge(entry);
    switch (entered.verdict) {
      case Verdict::full: ++figures_.refused_full; return entered;
      case Verdict::full_for_now: ++figures_.refused_memory; return entered;
      case Verdict::key_full: ++figures_.refused_key; return entered;
      case Verdict::admitted: break;
    }
    const auto queue_class = entry.terms.queue_class;
    figures_.entered[static_cast<size_t>(queue_class)] += entry.count;
    for (int64_t i = 0; i < entry.count; ++i) {
      const uint64_t ticket = entry.first_ticket + static_cast<uint64_t>(i);
      tickets_.emplace(ticket, Ticket{.sink = sink, .entered = clock_.now(), .queue_class = queue_class});
      fair_.arrive({.ticket = ticket,
                    .key = entry.terms.key_id,
                    .weight = entry.terms.weight,
                    .queue_class = queue_class,
                    .prompt_tokens = entry.prompt_tokens,
                    .deadline_us = deadline_us(entry.terms.deadline)});
    }
    pump(wakes);
    const auto own = [&](const Wake& wake) {
      return wake.ticket - entry.first_ticket < static_cast<uint64_t>(entry.count) && !wake.error;
    };
    for (const Wake& each : wakes) {
      if (own(each)) entered.turns.push_back(each.ticket);
    }
    std::erase_if(wakes, own);
    for (int64_t i = 0; i < entry.count; ++i) {
      const uint64_t ticket = entry.first_ticket + static_cast<uint64_t>(i);
      const auto at = tickets_.find(ticket);
      if (at == tickets_.end() || at->second.has_turn) continue;
      const int64_t ahead = fair_.ahead_of(ticket);
      entered.place = {.position = ahead + 1, .wait_ms = static_cast<int64_t>(wait_us(ahead) / 1e3)};
      break;
    }
  }
  wake(std::move(wakes));
  return entered;
}

void ModelQueue::pump(std::vector<Wake>& wakes) {
  for (const uint64_t ticket : fair_.expire(us_between(SteadyTime{}, clock_.now()))) {
    const auto at = tickets_.find(ticket);
    const int64_t waited_ms = us_between(at->second.entered, clock_.now()) / 1000;
    ++figures_.expired[static_cast<size_t>(at->second.queue_class)];
    wakes.push_back({at->second.sink, ticket,
                     make_error(Errc::cancelled, "the deadline passed after " + std::to_string(waited_ms) +
                                                     " ms in the queue of model " + options_.model + ", where " +
                                                     std::to_string(fair_.waiting()) + " still wait")});
    tickets_.erase(at);
  }
  // A host that is short of memory gets no look-ahead.
  const int64_t most = std::min(slots_now() + (slots_now() == slots_ ? kLookAhead : 0), turns_max_);
  while (under_way_ < most) {
    const auto ticket = fair_.next();
    if (!ticket.has_value()) return;
    Ticket& turn = tickets_.at(*ticket);
    turn.has_turn = true;
    turn.turn = clock_.now();
    ++under_way_;
    const auto at = static_cast<size_t>(turn.queue_class);
    ++figures_.turns[at];
    figures_.wait_us_total[at] += us_between(turn.entered, turn.turn);
    wakes.push_back({turn.sink, *ticket, std::nullopt});
  }
}

void ModelQueue::wake(std::vector<Wake> wakes) {
  for (Wake& each : wakes) {
    if (each.error.has_value()) {
      each.sink->on_refused(each.ticket, *std::move(each.error));
    } else {
      each.sink->on_turn(each.ticket);
    }
  }
}

void ModelQueue::charge(uint64_t ticket, int64_t answer_tokens) {
  MutexLock lock(mutex_);
  fair_.charge(ticket, answer_tokens);
}

microseconds ModelQueue::end(uint64_t ticket, Ended ended) {
  std::vector<Wake> wakes;
  Ticket gone;
  {
    MutexLock lock(mutex_);
    const auto at = tickets_.find(ticket);
    if (at == tickets_.end()) return {};
    gone = std::move(at->second);
    tickets_.erase(at);
    if (gone.has_turn) {
      --under_way_;
      fair_.finish(ticket, ended.cached_tokens);
      if (ended.service_us > 0) {
        const auto held = static_cast<double>(ended.service_us);
        mean_hold_us_ = mean_hold_us_ == 0.0 ? held : (1.0 - kMeanWeight) * mean_hold_us_ + kMeanWeight * held;
      }
    } else {
      CHECK(fair_.leave(ticket));
      ++figures_.left[static_cast<size_t>(gone.queue_class)];
    }
    pump(wakes);
  }
  wake(std::move(wakes));
  return gone.has_turn ? microseconds(us_between(gone.entered, gone.turn)) : microseconds(0);
}

void ModelQueue::refuse_waiting(const Error& error) {
  std::vector<Wake> wakes;
  {
    MutexLock lock(mutex_);
    for (auto at = tickets_.begin(); at != tickets_.end();) {
      if (at->second.has_turn) {
        ++at;
        continue;
      }
      CHECK(fair_.leave(at->first));
      ++figures_.left[static_cast<size_t>(at->second.queue_class)];
      wakes.push_back({std::move(at->second.sink), at->first, error});
      at = tickets_.erase(at);
    }
  }
  wake(std::move(wakes));
}

void ModelQueue::set_slots(int64_t slots) {
  CHECK(slots >= 1);
  std::vector<Wake> wakes;
  {
    MutexLock lock(mutex_);
    slots_ = slots;
    pump(wakes);
  }
  wake(std::move(wakes));
}

void ModelQueue::set_slots_max(int64_t slots_max) {
  CHECK(slots_max >= 1);
  std::vector<Wake> wakes;
  {
    MutexLock lock(mutex_);
    slots_max_ = slots_max;
    pump(wakes);
  }
  wake(std::move(wakes));
}

void ModelQueue::set_turns_max(int64_t turns_max) {
  CHECK(turns_max >= 0);
  std::vector<Wake> wakes;
  {
    MutexLock lock(mutex_);
    turns_max_ = turns_max;
    pump(wakes);
  }
  wake(std::move(wakes));
}

int64_t ModelQueue::slots() const {
  MutexLock lock(mutex_);
  return slots_now();
}

int64_t ModelQueue::slots_of_its_own() const {
  MutexLock lock(mutex_);
  return slots_;
}

int64_t ModelQueue::open() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(tickets_.size());
}

// Before the first answer has ended, the oldest one's time in its slot is the least that one takes.
double ModelQueue::hold_us() const {
  if (mean_hold_us_ > 0.0) return mean_hold_us_;
  double oldest = 0.0;
  for (const auto& [id, ticket] : tickets_) {
    if (ticket.has_turn) {
      oldest = std::max(oldest, static_cast<double>(us_between(ticket.turn, clock_.now())));
    }
  }
  return oldest;
}

double ModelQueue::wait_us(int64_t ahead) const {
  return hold_us() * static_cast<double>(ahead + 1) / static_cast<double>(slots_now());
}

int64_t ModelQueue::wait_s() const {
  MutexLock lock(mutex_);
  const int64_t ahead = std::max<int64_t>(static_cast<int64_t>(tickets_.size()) - slots_now(), 0);
  return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(wait_us(ahead) / 1e6)), 1, kWaitMaxS);
}

QueueFigures ModelQueue::figures() const {
  MutexLock lock(mutex_);
  QueueFigures now = figures_;
  now.under_way = under_way_;
  now.key_max = key_max();
  SteadyTime oldest = clock_.now();
  for (const auto& [id, ticket] : tickets_) {
    if (ticket.has_turn) continue;
    ++now.waiting[static_cast<size_t>(ticket.queue_class)];
    oldest = std::min(oldest, ticket.entered);
  }
  now.oldest_wait_ms = us_between(oldest, clock_.now()) / 1000;
  const auto open = static_cast<int64_t>(tickets_.size());
  const bool at_once = open < slots_now();
  now.wait_estimate_ms = at_once ? 0 : static_cast<int64_t>(wait_us(open - slots_now()) / 1e3);
  const double hold = hold_us();
  now.drain_per_s = hold > 0 ? 1e6 * static_cast<double>(slots_now()) / hold : 0.0;
  return now;
}

}  // namespace tandem::service
