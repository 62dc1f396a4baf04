// The guard's levels (rules U11-U14): from samples of the host to green, yellow, orange, red or black
// with hysteresis, and from a level to the steps of shedding, in order. Pure: the caller samples and
// acts. Nothing here allocates, so tandem-guard may run it when no page is left.
//
// A level is a set of latches. Each has its own way in (a floor held for a time) and its own way out
// (a higher floor held for longer); entering one latches all milder ones. The level is the worst
// latch that holds, so it falls back step by step and never flaps faster than a latch's way out.
//
// Bytes are bytes, times are milliseconds of a monotonic clock, PSI is in hundredths of a percent.
// Not thread-safe: one owner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "memory_budget/role.h"

namespace tandem::budget {

inline constexpr int64_t kGiB = int64_t{1} << 30;
inline constexpr int64_t kMiB = int64_t{1} << 20;

enum class Level : uint8_t { green, yellow, orange, red, black };
inline constexpr size_t kLevelCount = 5;
const char* level_name(Level level) noexcept;

// Floors of MemAvailable, and of MemFree right before a load (U5 b).
struct LevelFloors {
  int64_t yellow_enter = 0;
  int64_t yellow_leave = 0;  // the performance floor of plans and gates
  int64_t orange_enter = 0;
  int64_t orange_leave = 0;
  int64_t red_enter = 0;
  int64_t red_leave = 0;
  int64_t black_enter = 0;
  int64_t black_leave = 0;  // U11 gives none: red's way in, from where red's own way out counts
  int64_t load_free_min = 0;
  int64_t fall_rate_per_s = 0;  // falling faster is a second signal (U12)
  // How long MemAvailable must stay above red's way out; orange and yellow are left after a fifth of it,
  // black after a sixtieth.
  int64_t calm_ms = 300'000;
};

// U11: the table from 115 to 128 GiB, shares of MemTotal elsewhere. mem_total_bytes >= 0.
LevelFloors floors_for(int64_t mem_total_bytes) noexcept;
// Worse levels lie lower, and each is left above where it is entered.
bool floors_in_order(const LevelFloors& floors) noexcept;

// One look at the host. Counters are totals since boot, as the kernel gives them.
struct LevelSample {
  int64_t at_ms = 0;
  int64_t available_bytes = 0;
  int64_t free_bytes = 0;  // shown and kept; MemFree alone never raises a level
  int32_t psi_some_avg10 = 0;
  int32_t psi_full_avg10 = 0;
  bool psi_full_trigger = false;  // 100 ms of full stall within 1 s
  int64_t driver_no_memory_lines = 0;
  int64_t allocstalls = 0;
  int64_t compact_fails = 0;
  int64_t swap_in_bytes = 0;
  int32_t neighbour_loss_percent = 0;  // of the canary (U19), 0 when not measured
  bool loading = false;                // a model is between launch and ready
};

// Second signals (U12), as bits.
enum Signal : uint32_t {
  kSignalDriverBurst = 1,  // NVRM no-memory lines >= 10 within 1 s
  kSignalStallJump = 2,    // allocstall or compact_fail jumped
  kSignalSwapIn = 4,       // > 50 MB/s for 2 s
  kSignalPsiFull = 8,      // full avg10 >= 8, or the trigger
  kSignalFall = 16,        // fall rate above the floor's for 500 ms
};
inline constexpr std::array<uint32_t, 5> kAllSignals = {kSignalDriverBurst, kSignalStallJump,
                                                        kSignalSwapIn, kSignalPsiFull, kSignalFall};
const char* signal_name(uint32_t signal) noexcept;

struct LevelReading {
  Level level = Level::green;
  uint32_t signals = 0;          // seen within the last 2 s
  int64_t fall_rate_per_s = 0;   // over the last 500 ms; negative when memory grows
  bool psi_warning = false;      // some avg10 >= 5
};

class LevelMachine {
 public:
  explicit LevelMachine(const LevelFloors& floors) noexcept : floors_(floors) {}

  // Samples come in order of time; one that is not later than the last is ignored.
  LevelReading update(const LevelSample& sample) noexcept;
  [[nodiscard]] const LevelReading& reading() const noexcept { return reading_; }
  [[nodiscard]] const LevelFloors& floors() const noexcept { return floors_; }
  // From the next sample on; what is held is left by the new ways out.
  void set_floors(const LevelFloors& floors) noexcept { floors_ = floors; }

 private:
  static constexpr size_t kHistory = 128;  // 6.4 s at 20 Hz
  struct Latch {
    int64_t bad_since_ms = -1;
    int64_t good_since_ms = -1;
    bool held = false;
  };
  struct Way {  // what one sample says about one latch
    bool bad = false;
    bool good = false;
    int64_t enter_ms = 0;
    int64_t leave_ms = 0;
  };

  [[nodiscard]] const LevelSample* at_least_ago(int64_t age_ms) const noexcept;
  [[nodiscard]] bool stalls_jumped(const LevelSample& now) noexcept;
  void note_signals(const LevelSample& now) noexcept;
  [[nodiscard]] Way way_of(Level level, const LevelSample& now) const noexcept;
  void step_latch(Level level, const LevelSample& now, bool worse_held) noexcept;
  [[nodiscard]] Latch& latch(Level level) noexcept { return latches_[static_cast<size_t>(level)]; }

  LevelFloors floors_;
  LevelReading reading_;
  std::array<LevelSample, kHistory> history_{};
  size_t count_ = 0;  // samples ever taken
  std::array<Latch, kLevelCount> latches_{};
  std::array<int64_t, kAllSignals.size()> signal_at_ms_ = {-1, -1, -1, -1, -1};
  int64_t stalls_usual_per_s_ = 0;  // slow mean of the rate, in thousandths
};

// Shedding, in the order of U14; a later step is engaged only when the earlier ones are.
enum class ShedStep : uint8_t {
  optional_no_long_prefills,   // 1
  optional_freeze_growth,      // 1
  pause_background,            // 2
  optional_half_slots,         // 3
  optional_one_slot,           // 3
  optional_drop_prefix_cache,  // 3
  smaller_chunks,              // 4
  advise_clean_cache,          // 5: per file, of files nobody serves from
  default_prompt_cap,          // U11's orange
  optional_off,                // 6
  default_short_prompts,       // 7
  default_fewer_slots,         // 7: the rest is told 503 and when to come back
};
inline constexpr size_t kShedStepCount = 12;
const char* shed_step_name(ShedStep step) noexcept;

// A set of steps, as bits by the steps' numbers.
using ShedSet = uint32_t;
constexpr ShedSet shed_bit(ShedStep step) { return ShedSet{1} << static_cast<uint32_t>(step); }

// The default model is shed (7) only after the optional one is gone.
ShedSet shed_for(Level level, bool optional_gone) noexcept;

struct ShedChange {
  ShedStep step = ShedStep::optional_no_long_prefills;
  bool engage = false;
};
struct ShedChanges {
  std::array<ShedChange, 2 * kShedStepCount> items{};
  size_t count = 0;
};
// Steps to release, last first, then steps to engage, first first.
ShedChanges shed_changes(ShedSet before, ShedSet after) noexcept;

// What the steps mean for a tenant's numbers.
int64_t shed_optional_slots(ShedSet set, int64_t configured) noexcept;
int64_t shed_chunk_tokens(ShedSet set, Role role, int64_t configured) noexcept;
int64_t shed_default_slots(ShedSet set, int64_t configured) noexcept;
// Longest prompt of a new request, of a model with so much context; 0: no limit. 64K passed where 131K
// reset a host (U16); a prefill of more than 8K is long.
int64_t shed_prompt_tokens(ShedSet set, Role role, int64_t context_tokens) noexcept;
// What a refusal says at least, in seconds: the worse the level, the later it is worth asking again.
int64_t shed_retry_after_s(Level level) noexcept;

// U19: why the neighbour is slower, from the canary and the bandwidth probe, both in percent of
// their values with the default model alone.
enum class LossCause : uint8_t { none, memory_pressure, slow_state, sharing };
struct CanaryReading {
  int32_t canary_percent = 100;
  int32_t bandwidth_percent = 100;
  bool optional_busy = false;  // in prefill or decode while the canary ran
};
LossCause loss_cause(const CanaryReading& reading) noexcept;
const char* loss_cause_name(LossCause cause) noexcept;

}  // namespace tandem::budget
