// Learned numbers of a model's memory (rule U1): what its engine held at the worst moment of its load,
// after it, and while it serves, measured per run from the process group, and kept for the same weights,
// engine, flags, kernel and driver. A start is admitted on the largest, accounted on the steady value.
//
// RunMeter and combine() are pure. LearnedBook: supervisor's thread after open(); it writes through the
// store's queue and never waits for a disk.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "memory_budget/restart.h"
#include "service/config.h"
#include "service/store/rows.h"

namespace tandem::service {

class Store;

// One look at a running engine. Held: anonymous and mapped bytes of the group now; peak: the most it
// ever held, by the kernel's high-water mark.
struct RunLook {
  int64_t at_ms = 0;
  bool ready = false;
  int64_t held_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t anonymous_bytes = 0;
  int64_t kv_bytes = 0;          // its budget; 0: not known yet
  // Totals of the engine's own counters; 0 prompt tokens: nothing was asked of it yet.
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t step_us = 0;
};

class RunMeter {
 public:
  static constexpr int64_t kSettledMs = 60'000;  // from ready: graphs captured, tables warm

  // A look of the next run begins it anew: one that is not ready after one that was.
  void look(const RunLook& look);
  // True once a run, when its numbers are complete; and whenever they have grown since.
  bool take_news();
  [[nodiscard]] const LearnedNumbers& numbers() const { return numbers_; }

 private:
  void note_prefill(const RunLook& look);

  LearnedNumbers numbers_;
  int64_t ready_ms_ = -1;
  RunLook last_;
  LearnedNumbers told_;
};

// What is known after one more run. Peaks are the largest seen; a larger one of long ago gives way by an
// eighth of the difference a run, so that one odd load does not cost its room for ever. The rest follows
// the latest run.
LearnedNumbers combine(const LearnedNumbers& before, const LearnedNumbers& run);

// Identity of the weights for this purpose: the file's path, size and time.
std::string weights_identity(const std::string& file);
// Of the settings that change what an engine allocates.
std::string memory_flags_hash(const ModelConfig& model);

class LearnedBook {
 public:
  LearnedBook(Store& store, const Clock& clock);

  // Reads what is known of these weights. An error of the store is logged: nothing is known then.
  void open(const ModelConfig& model);
  // The profile of the next start: with what was learned, else as it came.
  [[nodiscard]] budget::Profile profile(const ModelConfig& model, budget::Profile otherwise) const;
  // The largest one that ran with these weights and needs less; to fall back to.
  [[nodiscard]] std::optional<budget::Profile> known_good(const ModelConfig& model,
                                                          const budget::Profile& wanted) const;
  // A start: what follows is of another run.
  void begin_run(const ModelConfig& model) { before_run_.erase(key_of(model)); }
  void learn(const ModelConfig& model, const LearnedNumbers& run);

 private:
  [[nodiscard]] LearnedKey key_of(const ModelConfig& model) const;

  Store& store_;
  const Clock& clock_;
  const std::string kernel_;
  const std::string driver_;
  std::map<LearnedKey, LearnedNumbers> known_;
  std::map<LearnedKey, LearnedNumbers> before_run_;  // so that news of one run count once
};

}  // namespace tandem::service
