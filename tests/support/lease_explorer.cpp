#include "tests/support/lease_explorer.h"

#include <algorithm>
#include <utility>

namespace tandem::tests {
namespace {

constexpr int kCrash = 10;   // in a path: 10 + tenant dies,
constexpr int kReturn = 20;  // 20 + tenant comes back

uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9E37'79B9'7F4A'7C15U + (hash << 6) + (hash >> 2);
  hash *= 0xFF51'AFD7'ED55'8CCDU;
  return hash ^ (hash >> 29);
}

}  // namespace

// The past is answered from the log; the first new step is made; the one after that leaves the program.
template <typename Step>
uint32_t LeaseExplorer::Platform::step(bool is_word, Step make) {
  Tenant& own = explorer.now_.tenants[self];
  if (explorer.next_answer_ < own.answers.size()) return own.answers[explorer.next_answer_++].value;
  if (explorer.stepped_) std::longjmp(explorer.left_, 1);
  explorer.stepped_ = true;
  const uint32_t answer = make(explorer.now_);
  own.answers.push_back({answer, is_word});
  ++explorer.next_answer_;
  return answer;
}

uint32_t LeaseExplorer::Platform::load() {
  const uint32_t word = step(true, [](State& now) { return now.word; });
  Tenant& own = explorer.now_.tenants[self];
  own.relevant = explorer.next_answer_ - 1;
  own.loads = std::min(own.loads + 1, 2);
  own.last_word = word;
  return word;
}

// No step of its own: between two operations of the lease nothing but the epoch is remembered.
void LeaseExplorer::Platform::mark(int place, bool holds) {
  Tenant& own = explorer.now_.tenants[self];
  // Once: this program is run again for every later step.
  if (explorer.stepped_ && self == 1) explorer.now_.excused = false;
  own.place = place;
  own.loads = 0;
  own.relevant = explorer.next_answer_;
  own.holds = holds;
  own.held_word = own.last_word;
}

bool LeaseExplorer::Platform::cas(uint32_t& expected, uint32_t desired) {
  const bool blind = explorer.options_.mutation == LeaseMutation::blind_store;
  const uint32_t found = step(true, [&](State& now) {
    const uint32_t before = now.word;
    if (blind || before == expected) now.word = desired;
    const bool takes = lease_word::holder(before) == 1 && lease_word::holder(desired) == 0;
    if (self == 0 && takes && before == expected && now.bypassed) now.excused = true;
    return before;
  });
  const bool done = blind || found == expected;
  explorer.now_.tenants[self].last_word = done ? desired : found;
  if (done) return true;
  expected = found;
  return false;
}

bool LeaseExplorer::Platform::spin_while(uint32_t word) {
  return step(false, [&](State& now) { return now.word != word ? 1U : 0U; }) != 0;
}

void LeaseExplorer::Platform::wait(uint32_t word) {
  const bool blind = explorer.options_.mutation == LeaseMutation::blind_sleep;
  step(false, [&](State& now) {
    if (blind || now.word == word) now.tenants[self].sleeping = true;
    return 0U;
  });
}

void LeaseExplorer::Platform::wake(int tenant) {
  step(false, [&](State& now) {
    if (explorer.options_.mutation != LeaseMutation::drop_wake) now.tenants[tenant].sleeping = false;
    return 0U;
  });
}

bool LeaseExplorer::Platform::dead(int tenant) {
  return step(false, [&](State& now) {
    if (explorer.options_.mutation == LeaseMutation::never_dead) return 0U;
    if (explorer.options_.mutation == LeaseMutation::always_dead) return 1U;
    const Tenant& other = now.tenants[tenant];
    return other.alive && other.present ? 0U : 1U;
  }) != 0;
}

bool LeaseExplorer::Platform::overdue(uint32_t word) {
  return step(false, [&](State& now) {
    const int holder = lease_word::holder(word);
    if (!explorer.options_.bypasses || self != 0 || holder != 1 || now.bypassed) return 0U;
    now.bypassed = now.word == word;
    return now.bypassed ? 1U : 0U;
  }) != 0;
}

void LeaseExplorer::Platform::enter() {
  step(false, [&](State& now) {
    Tenant& other = now.tenants[1 - self];
    if (other.alive && other.inside && !now.excused) explorer.fail("both tenants are on the device");
    now.tenants[self].inside = true;
    return 0U;
  });
}

void LeaseExplorer::Platform::leave() {
  step(false, [&](State& now) {
    now.tenants[self].inside = false;
    return 0U;
  });
}

void LeaseExplorer::Platform::appear() {
  step(false, [&](State& now) {
    now.tenants[self].present = true;
    return 0U;
  });
}

void LeaseExplorer::Platform::finish() {
  step(false, [&](State& now) {
    now.tenants[self].finished = true;
    return 0U;
  });
}

void LeaseExplorer::program(int tenant) {
  Platform platform{*this, tenant};
  LeaseContender<Platform> contender(platform, tenant);
  const bool default_first = options_.turns == LeaseTurns::default_first;
  const bool may_lose = options_.bypasses && tenant == 1;
  const auto may_take = [&](uint32_t word) {
    return !default_first || tenant == 0 || (word & lease_word::active(0)) == 0;
  };
  const auto turn = [&](uint32_t word) {
    const bool other_waits = (word & lease_word::waiting(1 - tenant)) != 0;
    if (default_first && tenant == 0) return 0;
    return other_waits ? 1 - tenant : tenant;
  };
  if (now_.tenants[tenant].returned) {
    contender.clear_own();
    platform.mark(1);
    platform.appear();
  }
  using End = LeaseContender<Platform>::UnitEnd;
  const auto go_on = [&](int place) {
    const End end = contender.unit_end(turn);
    if (end == End::lost && !may_lose) fail("the lease was taken from a live holder");
    if (end == End::kept) return;
    platform.mark(place);
    contender.acquire(may_take);
  };
  bool holds = false;
  for (int round = 0; round < options_.rounds; ++round) {
    const int place = 2 + round * 6;
    platform.mark(place, holds);
    if (holds) {
      go_on(place + 1);
    } else {
      contender.acquire(may_take);
    }
    platform.mark(place + 2, true);
    platform.enter();
    platform.leave();
    platform.mark(place + 3, true);
    go_on(place + 4);
    platform.mark(place + 5, true);
    platform.enter();
    platform.leave();
    holds = round % 2 == 0;  // after the others it has nothing to do for a while
    if (!holds) contender.go_idle();
  }
  platform.mark(0);
  contender.go_idle();
  platform.finish();
}

LeaseExplorer::State LeaseExplorer::after_step(const State& state, int tenant) {
  now_ = state;
  Tenant& own = now_.tenants[tenant];
  if (std::exchange(own.sleeping, false)) --own.timeouts_left;
  next_answer_ = 0;
  stepped_ = false;
  own.place = 0;
  own.loads = 0;
  own.relevant = 0;
  own.last_word = 0;
  own.holds = false;
  own.held_word = 0;
  if (setjmp(left_) == 0) program(tenant);
  return now_;
}

bool LeaseExplorer::can_step(const State& state, int tenant) const {
  const Tenant& own = state.tenants[tenant];
  if (!own.alive || own.finished) return false;
  const bool time_passes = state.crashed || (options_.bypasses && !state.bypassed && tenant == 0);
  return !own.sleeping || (time_passes && own.timeouts_left > 0);
}

uint64_t LeaseExplorer::key(const State& state) {
  const auto relative = [&](uint32_t word) {
    const uint32_t bits = (1U << lease_word::kEpochShift) - 1;
    return (word & bits) | ((state.word >> lease_word::kEpochShift) - lease_word::epoch(word))
                               << lease_word::kEpochShift;
  };
  uint64_t hash = mix(relative(state.word), (state.crashed ? 1U : 0U) | (state.bypassed ? 2U : 0U) | (state.excused ? 4U : 0U));
  for (const Tenant& tenant : state.tenants) {
    hash = mix(hash, static_cast<uint64_t>(tenant.place * 32 + tenant.loads * 8 + tenant.timeouts_left));
    if (tenant.holds) hash = mix(hash, relative(tenant.held_word) >> lease_word::kEpochShift);
    hash = mix(hash, (tenant.alive ? 1U : 0U) | (tenant.present ? 2U : 0U) | (tenant.returned ? 4U : 0U) |
                         (tenant.sleeping ? 8U : 0U) | (tenant.inside ? 16U : 0U) |
                         (tenant.finished ? 32U : 0U));
    hash = mix(hash, tenant.answers.size() - tenant.relevant);
    for (size_t i = tenant.relevant; i < tenant.answers.size(); ++i) {
      const Answer& answer = tenant.answers[i];
      hash = mix(hash, answer.is_word ? relative(answer.value) : answer.value);
    }
  }
  return hash;
}

void LeaseExplorer::fail(const char* what) {
  if (!verdict_.failure.empty()) return;
  verdict_.failure = what;
  verdict_.path = path_;
}

void LeaseExplorer::visit(const State& state, size_t depth) {
  if (!verdict_.failure.empty() || !seen_.insert(key(state)).second) return;
  verdict_.depth = std::max(verdict_.depth, depth);
  if (seen_.size() > options_.states_max) return fail("more states than states_max");
  if (depth > options_.depth_max) {
    ++verdict_.cut;
    // Alone, a survivor needs a few steps.
    if (state.crashed) fail("no recovery from a death within the depth");
    return;
  }
  bool moved = false;
  const auto follow = [&](int mark, const State& next) {
    moved = true;
    path_.push_back(mark);
    if (verdict_.failure.empty()) visit(next, depth + 1);
    path_.pop_back();
  };
  for (int tenant = 0; tenant < kLeaseTenants; ++tenant) {
    const Tenant& own = state.tenants[tenant];
    if (can_step(state, tenant)) follow(tenant, after_step(state, tenant));
    if (options_.crashes && !state.crashed && own.alive && !own.finished) {
      State dead = state;
      dead.crashed = true;
      dead.tenants[tenant].alive = false;
      dead.tenants[tenant].inside = false;
      follow(kCrash + tenant, dead);
    }
    if (options_.returns && !own.alive && !own.returned) {
      State back = state;
      back.tenants[tenant] = {};
      back.tenants[tenant].present = false;
      back.tenants[tenant].returned = true;
      follow(kReturn + tenant, back);
    }
  }
  if (moved) return;
  for (const Tenant& tenant : state.tenants) {
    if (tenant.alive && !tenant.finished) return fail("a wake-up is lost: everybody sleeps");
  }
  ++verdict_.ends;
}

LeaseVerdict LeaseExplorer::run() {
  visit(State{}, 0);
  verdict_.states = seen_.size();
  return verdict_;
}

}  // namespace tandem::tests
