#include "engine/run/device_lease.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace tandem::engine {
namespace {

constexpr int64_t kPermilleMax = 500;
constexpr int64_t kQuantumMaxNs = 1'000'000'000;

// Counters have one writer.
void add(std::atomic<int64_t>& counter, int64_t by) {
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

int64_t read(const std::atomic<int64_t>& value) { return value.load(std::memory_order_relaxed); }

}  // namespace

Result<std::unique_ptr<DeviceLease>> DeviceLease::attach(const std::string& path, budget::Role role) {
  TRY_ASSIGN(LeasePageMapping page, map_lease_page(path));
  const auto self = static_cast<int>(budget::role_index(role));
  LeaseTenant& own = page->tenants[static_cast<size_t>(self)];
  LeasePagePlatform platform(*page, self);
  if (!platform.dead(self)) {
    return make_error(Errc::exhausted, "process " + std::to_string(lease_pid(own.identity.load())) +
                                           " has this model's place on " + path);
  }
  // In this order: while the old identity stands, the neighbour takes what the word says of this tenant for
  // a dead one's, and that is what it is.
  Contender(platform, self).clear_own();
  for (std::atomic<int64_t>* figure :
       {&own.predicted_ns, &own.actual_ns, &own.served_ns, &own.step_begun_ns, &own.solo_step_ns,
        &own.quantum_ns, &own.waits, &own.hand_overs, &own.broken, &own.bypassed, &own.overruns}) {
    figure->store(0);
  }
  own.units.store(0);
  const uint64_t identity = lease_identity_of(::getpid());
  if (identity == 0) return make_error(Errc::io, "cannot read the start time of this process");
  own.identity.store(identity);
  return std::make_unique<DeviceLease>(Key{}, std::move(page), role);
}

DeviceLease::DeviceLease(Key, LeasePageMapping page, budget::Role role)
    : page_(std::move(page)),
      self_(static_cast<int>(budget::role_index(role))),
      platform_(*page_, self_),
      contender_(platform_, self_) {}

DeviceLease::~DeviceLease() {
  contender_.go_idle();  // also where a step was under way
  own().identity.store(0);
}

// The page is shared memory: what it says is bounded before it is used.
policies::TurnRules DeviceLease::rules() const {
  policies::TurnRules rules;
  rules.floor_permille = std::clamp<int64_t>(read(page_->floor_permille), 0, kPermilleMax);
  const int64_t set = read(page_->quantum_ns);
  const LeaseTenant& first = page_->tenants[kDefault];
  const int64_t most = policies::turn_quantum(read(first.solo_step_ns));
  const int64_t suits = read(first.quantum_ns);
  rules.quantum_ns = set > 0     ? std::min(set, kQuantumMaxNs)
                     : suits > 0 ? std::clamp(suits, policies::turn_quantum(1), most)
                                 : most;
  return rules;
}

// This tenant has a unit to run; so the turn is somebody's.
int DeviceLease::turn(uint32_t word) const {
  policies::TurnBoard board;
  const auto fill = [&](policies::TurnTenant& tenant, int index) {
    tenant.has_work = (word & lease_word::active(index)) != 0 || lease_word::holder(word) == index;
    tenant.wants = index == self_ || (word & lease_word::waiting(index)) != 0;
  };
  fill(board.default_model, kDefault);
  fill(board.optional_model, kOptional);
  board.credit_ns = read(page_->optional_credit_ns);
  return policies::choose_turn(board, rules()) == policies::Turn::optional_model ? kOptional : kDefault;
}

void DeviceLease::acquire() {
  const auto may_take = [this](uint32_t word) { return turn(word) == self_; };
  // The clock is read only where there was something to wait for.
  const int64_t begun = lease_now_ns();
  const auto taken = contender_.acquire(may_take);
  if (taken == Contender::Taken::at_once) return;
  add(own().waits, 1);
  note_wait(lease_now_ns() - begun);
  if (taken == Contender::Taken::broke) {
    add(own().broken, 1);
    log::warning("lease: its holder has ended; broken");
  } else if (taken == Contender::Taken::bypassed) {
    add(own().bypassed, 1);
    log::warning("lease: its holder is past ten times its prediction; bypassed");
  }
}

void DeviceLease::begin_step() {
  if (held_) {
    end_host_unit();
  } else {
    acquire();
    held_ = true;
  }
  step_device_ns_ = 0;
  own().step_begun_ns.store(lease_now_ns(), std::memory_order_relaxed);
}

void DeviceLease::begin_unit(int64_t predicted_ns) {
  own().predicted_ns.store(predicted_ns, std::memory_order_relaxed);
  own().units.store(own().units.load(std::memory_order_relaxed) + 1);
  unit_begun_ns_ = lease_now_ns();
}

// For the unit that ends now.
void DeviceLease::charge() {
  const int64_t now = lease_now_ns();
  const int64_t unit_ns = now - unit_begun_ns_;
  own().actual_ns.store(unit_ns, std::memory_order_relaxed);
  add(own().served_ns, unit_ns);
  step_device_ns_ += unit_ns;
  const int64_t begun = read(page_->tenants[kOptional].step_begun_ns);
  const policies::TurnCharge charge{
      .optional_ran = self_ != kDefault,
      .other_has_work = (platform_.glance() & lease_word::active(1 - self_)) != 0,
      .unit_ns = unit_ns,
      .optional_step_age_ns = begun > 0 ? now - begun : 0};
  page_->optional_credit_ns.store(
      policies::charge_turn(read(page_->optional_credit_ns), charge, rules()),
      std::memory_order_relaxed);
}

void DeviceLease::end_unit() {
  charge();
  const auto ended = contender_.unit_end([this](uint32_t word) { return turn(word); });
  if (ended == Contender::UnitEnd::kept) return;
  add(ended == Contender::UnitEnd::lost ? own().overruns : own().hand_overs, 1);
  acquire();
}

void DeviceLease::end_step(bool usual) {
  end_unit();
  own().step_begun_ns.store(0, std::memory_order_relaxed);
  if (usual) {
    const int64_t known = read(own().solo_step_ns);
    const int64_t step = known == 0 ? step_device_ns_ : known + (step_device_ns_ - known) / 16;
    own().solo_step_ns.store(step, std::memory_order_relaxed);
  }
  if (self_ == kDefault) follow_gaps(usual);
  begin_host_unit();
}

// From the end of one decode step to that of the next, which is what clients see between two tokens.
void DeviceLease::follow_gaps(bool usual) {
  using Beside = policies::QuantumDial::Beside;
  const int64_t now = lease_now_ns();
  const bool active = (platform_.glance() & lease_word::active(kOptional)) != 0;
  if (usual && step_ended_ns_ > 0) {
    const Beside beside = active != other_was_active_ ? Beside::mixed : active ? Beside::contended : Beside::alone;
    dial_.see(now - step_ended_ns_, beside, rules().floor_permille);
    own().quantum_ns.store(dial_.quantum_ns(policies::turn_quantum(read(own().solo_step_ns))),
                           std::memory_order_relaxed);
  }
  step_ended_ns_ = usual ? now : 0;
  other_was_active_ = active;
}

void DeviceLease::begin_host_unit() {
  begin_unit(host_unit_ns_);
  host_ = true;
}

void DeviceLease::end_host_unit() {
  host_ = false;
  const int64_t took = lease_now_ns() - unit_begun_ns_;
  host_unit_ns_ = host_unit_ns_ == 0 ? took : host_unit_ns_ + (took - host_unit_ns_) / 16;
  end_unit();
}

void DeviceLease::between_requests() {
  end_host_unit();
  begin_host_unit();
}

void DeviceLease::go_idle() {
  if (!std::exchange(held_, false)) return;
  CHECK(host_);
  host_ = false;
  step_ended_ns_ = 0;
  charge();
  contender_.go_idle();
}

void DeviceLease::note_wait(int64_t wait_ns) {
  const int64_t us = wait_ns / 1000;
  wait_us_total_ += us;
  waits_us_[static_cast<size_t>(waits_noted_) % kWaitsKept] =
      static_cast<int32_t>(std::min<int64_t>(us, INT32_MAX));
  ++waits_noted_;
}

void DeviceLease::add_stats(protocol::Stats& stats) const {
  const LeaseTenant& tenant = own();
  stats.lease_waits = read(tenant.waits);
  stats.lease_wait_us_total = wait_us_total_;
  stats.lease_hand_overs = read(tenant.hand_overs);
  stats.lease_broken = read(tenant.broken);
  stats.lease_bypassed = read(tenant.bypassed);
  stats.lease_overruns = read(tenant.overruns);
  stats.lease_units = static_cast<int64_t>(tenant.units.load(std::memory_order_relaxed));
  stats.lease_served_us = read(tenant.served_ns) / 1000;
  stats.lease_solo_step_us = read(tenant.solo_step_ns) / 1000;
  stats.lease_quantum_us = rules().quantum_ns / 1000;
  const auto kept = std::min<size_t>(static_cast<size_t>(waits_noted_), kWaitsKept);
  if (kept == 0) return;
  std::array<int32_t, kWaitsKept> sorted = waits_us_;
  std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(kept));
  stats.lease_wait_p50_us = sorted[kept / 2];
  stats.lease_wait_p99_us = sorted[(kept - 1) * 99 / 100];
}

}  // namespace tandem::engine
