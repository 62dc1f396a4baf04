#include "memory_budget/levels.h"

#include <algorithm>

namespace tandem::budget {
namespace {

constexpr int64_t kFallWindowMs = 500;
constexpr int64_t kSecondMs = 1000;
constexpr int64_t kSwapWindowMs = 2000;
constexpr int64_t kSwapInPerS = 50'000'000;
constexpr int64_t kDriverBurstLines = 10;
constexpr int64_t kSignalHoldMs = 2000;
// Time that nobody watched is no evidence that the host was well.
constexpr int64_t kUnseenMs = 5000;

constexpr int32_t kPsiWarnSome = 500;
constexpr int32_t kPsiOrangeSome = 1500;
constexpr int32_t kPsiOrangeFull = 300;
constexpr int32_t kPsiRedFull = 800;
constexpr int32_t kNeighbourLossPercent = 10;

// A jump: at least this many stalls in a second, and four times what is usual here.
constexpr int64_t kStallsPerSMin = 50;
constexpr int64_t kStallsJumpFactor = 4;
constexpr int64_t kStallsMeanMs = 60'000;

int64_t permille(int64_t total, int64_t parts) { return total / 1000 * parts; }

bool psi_orange(const LevelSample& s) {
  return s.psi_some_avg10 >= kPsiOrangeSome || s.psi_full_avg10 >= kPsiOrangeFull;
}

// Per second, over the time between two samples; `before` is older.
int64_t per_second(int64_t before, int64_t after, int64_t ms) {
  return ms <= 0 ? 0 : static_cast<int64_t>(static_cast<double>(after - before) * 1000.0 /
                                            static_cast<double>(ms));
}

}  // namespace

const char* level_name(Level level) noexcept {
  switch (level) {
    case Level::green: return "green";
    case Level::yellow: return "yellow";
    case Level::orange: return "orange";
    case Level::red: return "red";
    case Level::black: return "black";
  }
  return "?";
}

const char* signal_name(uint32_t signal) noexcept {
  switch (signal) {
    case kSignalDriverBurst: return "driver_no_memory_burst";
    case kSignalStallJump: return "stall_jump";
    case kSignalSwapIn: return "swap_in";
    case kSignalPsiFull: return "psi_full";
    case kSignalFall: return "fall_rate";
    default: return "?";
  }
}

LevelFloors floors_for(int64_t total) noexcept {
  LevelFloors f;
  if (total >= 115 * kGiB && total <= 128 * kGiB) {
    f = {.yellow_enter = 20 * kGiB, .yellow_leave = 24 * kGiB, .orange_enter = 12 * kGiB,
         .orange_leave = 16 * kGiB, .red_enter = 8 * kGiB, .red_leave = 14 * kGiB,
         .black_enter = 4 * kGiB, .load_free_min = 8 * kGiB};
  } else {
    f.black_enter = std::max(permille(total, 35), 3 * kGiB / 4);
    f.red_enter = std::max(permille(total, 65), f.black_enter + 3 * kGiB / 4);
    f.orange_enter = std::max(permille(total, 100), f.red_enter + 3 * kGiB / 4);
    f.yellow_enter = std::max(permille(total, 160), f.orange_enter + kGiB);
    f.yellow_leave = f.yellow_enter / 100 * 120;
    f.orange_leave = f.orange_enter / 100 * 133;
    f.red_leave = f.red_enter / 100 * 175;
    f.load_free_min = permille(total, 65);
  }
  f.black_leave = f.red_enter;
  // 1 GiB/s on the table's boxes; a small box is as soon empty at a smaller rate.
  f.fall_rate_per_s = std::clamp(total / 115, kGiB / 4, kGiB);
  return f;
}

bool floors_in_order(const LevelFloors& f) noexcept {
  return 0 < f.black_enter && f.black_enter < f.red_enter && f.red_enter < f.orange_enter &&
         f.orange_enter < f.yellow_enter && f.yellow_enter <= f.yellow_leave &&
         f.orange_enter < f.orange_leave && f.red_enter < f.red_leave && f.fall_rate_per_s > 0 &&
         f.calm_ms > 0;
}

const LevelSample* LevelMachine::at_least_ago(int64_t age_ms) const noexcept {
  if (count_ == 0) return nullptr;
  const int64_t now_ms = history_[(count_ - 1) % kHistory].at_ms;
  const size_t kept = std::min(count_, kHistory);
  for (size_t back = 1; back < kept; ++back) {
    const LevelSample& old = history_[(count_ - 1 - back) % kHistory];
    if (now_ms - old.at_ms >= age_ms) return &old;
  }
  return nullptr;
}

bool LevelMachine::stalls_jumped(const LevelSample& now) noexcept {
  const LevelSample* old = at_least_ago(kSecondMs);
  if (old == nullptr) return false;
  const int64_t ms = now.at_ms - old->at_ms;
  const int64_t rate = std::max(per_second(old->allocstalls, now.allocstalls, ms),
                                per_second(old->compact_fails, now.compact_fails, ms));
  const bool jumped =
      rate >= kStallsPerSMin && rate * 1000 >= kStallsJumpFactor * stalls_usual_per_s_;
  const int64_t step_ms = now.at_ms - history_[(count_ - 2) % kHistory].at_ms;
  const int64_t weight_ms = std::min(step_ms, kStallsMeanMs);
  stalls_usual_per_s_ += (std::min<int64_t>(rate, 1'000'000) * 1000 - stalls_usual_per_s_) *
                         weight_ms / kStallsMeanMs;
  return jumped;
}

void LevelMachine::note_signals(const LevelSample& now) noexcept {
  uint32_t seen = 0;
  if (const LevelSample* old = at_least_ago(kFallWindowMs)) {
    reading_.fall_rate_per_s =
        per_second(now.available_bytes, old->available_bytes, now.at_ms - old->at_ms);
    if (reading_.fall_rate_per_s > floors_.fall_rate_per_s) seen |= kSignalFall;
  }
  if (const LevelSample* old = at_least_ago(kSecondMs)) {
    // A watcher that slept for long cannot tell a burst from a trickle by the total alone.
    const int64_t lines = now.driver_no_memory_lines - old->driver_no_memory_lines;
    const int64_t seconds = std::max<int64_t>(1, (now.at_ms - old->at_ms) / kSecondMs);
    if (lines / seconds >= kDriverBurstLines) seen |= kSignalDriverBurst;
  } else if (count_ > 1 &&
             now.driver_no_memory_lines - history_[0].driver_no_memory_lines >= kDriverBurstLines) {
    seen |= kSignalDriverBurst;
  }
  if (const LevelSample* old = at_least_ago(kSwapWindowMs)) {
    if (per_second(old->swap_in_bytes, now.swap_in_bytes, now.at_ms - old->at_ms) > kSwapInPerS) {
      seen |= kSignalSwapIn;
    }
  }
  if (stalls_jumped(now)) seen |= kSignalStallJump;
  if (now.psi_full_avg10 >= kPsiRedFull || now.psi_full_trigger) seen |= kSignalPsiFull;

  reading_.signals = 0;
  for (size_t i = 0; i < kAllSignals.size(); ++i) {
    if ((seen & kAllSignals[i]) != 0) signal_at_ms_[i] = now.at_ms;
    const bool fresh = signal_at_ms_[i] >= 0 && now.at_ms - signal_at_ms_[i] <= kSignalHoldMs;
    if (fresh) reading_.signals |= kAllSignals[i];
  }
  reading_.psi_warning = now.psi_some_avg10 >= kPsiWarnSome;
}

LevelMachine::Way LevelMachine::way_of(Level level, const LevelSample& now) const noexcept {
  const int64_t available = now.available_bytes;
  switch (level) {
    case Level::green: return {};
    case Level::yellow: {
      const bool slow = now.neighbour_loss_percent > kNeighbourLossPercent;
      return {.bad = available < floors_.yellow_enter || slow,
              .good = available > floors_.yellow_leave && !slow,
              .enter_ms = 5000,
              .leave_ms = floors_.calm_ms / 5};
    }
    case Level::orange:
      return {.bad = available < floors_.orange_enter || psi_orange(now),
              .good = available > floors_.orange_leave && !psi_orange(now),
              .enter_ms = 1000,
              .leave_ms = floors_.calm_ms / 5};
    case Level::red: {
      // While a model loads, its peak is still to come: it is stopped where orange begins.
      const int64_t floor = now.loading ? floors_.orange_enter : floors_.red_enter;
      return {.bad = available < floor,
              .good = available > floors_.red_leave,
              .enter_ms = 1,  // a second sample, whenever it comes
              .leave_ms = floors_.calm_ms};
    }
    case Level::black:
      return {.bad = available < floors_.black_enter,
              .good = available > floors_.black_leave,
              .enter_ms = 0,
              .leave_ms = floors_.calm_ms / 60};
  }
  return {};
}

void LevelMachine::step_latch(Level level, const LevelSample& now, bool worse_held) noexcept {
  Latch& l = latch(level);
  const Way way = way_of(level, now);
  l.bad_since_ms = !way.bad ? -1 : l.bad_since_ms < 0 ? now.at_ms : l.bad_since_ms;
  const bool unseen =
      count_ > 1 && now.at_ms - history_[(count_ - 2) % kHistory].at_ms > kUnseenMs;
  if (unseen) l.good_since_ms = -1;
  l.good_since_ms = !way.good ? -1 : l.good_since_ms < 0 ? now.at_ms : l.good_since_ms;

  const bool confirmed = level != Level::red || reading_.signals != 0;
  if (way.bad && confirmed && now.at_ms - l.bad_since_ms >= way.enter_ms) {
    for (size_t i = 1; i <= static_cast<size_t>(level); ++i) latches_[i].held = true;
  } else if (l.held && !worse_held && way.good && now.at_ms - l.good_since_ms >= way.leave_ms) {
    l.held = false;
  }
}

LevelReading LevelMachine::update(const LevelSample& sample) noexcept {
  if (count_ > 0 && sample.at_ms <= history_[(count_ - 1) % kHistory].at_ms) return reading_;
  history_[count_ % kHistory] = sample;
  ++count_;
  note_signals(sample);
  // Worst first: a milder latch holds as long as a worse one does.
  reading_.level = Level::green;
  for (size_t i = kLevelCount; i-- > 1;) {
    step_latch(static_cast<Level>(i), sample, reading_.level != Level::green);
    if (latches_[i].held && reading_.level == Level::green) reading_.level = static_cast<Level>(i);
  }
  return reading_;
}

const char* loss_cause_name(LossCause cause) noexcept {
  switch (cause) {
    case LossCause::none: return "none";
    case LossCause::memory_pressure: return "memory_pressure";
    case LossCause::slow_state: return "slow_state";
    case LossCause::sharing: return "sharing";
  }
  return "?";
}

LossCause loss_cause(const CanaryReading& r) noexcept {
  if (r.canary_percent >= 100 - kNeighbourLossPercent) return LossCause::none;
  if (r.optional_busy) return LossCause::sharing;
  // Alone on the bus and the bus itself is slow: the device's hidden state, not memory.
  return r.bandwidth_percent < 90 ? LossCause::slow_state : LossCause::memory_pressure;
}

}  // namespace tandem::budget
