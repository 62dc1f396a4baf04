// DriftWatch: whether a process holds the memory that its books say. A difference above
// max(5 % of the books, 64 MiB) for a minute is a drift; it is over when it was within the bound for a
// minute. While it lasts, another bound on top is news. Pure: the caller brings numbers and time.
#pragma once

#include <cstdint>

namespace tandem::budget {

enum class DriftNews : uint8_t { none, began, grew, ended };

class DriftWatch {
 public:
  struct Limits {
    int64_t bytes_min = int64_t{64} << 20;
    int64_t percent = 5;
    int64_t hold_ms = 60'000;
  };

  DriftWatch() = default;
  explicit DriftWatch(const Limits& limits) : limits_(limits) {}

  // Another process, or one whose books are being changed: begins anew. `ended` if there was a drift.
  DriftNews reset();
  DriftNews look(int64_t booked_bytes, int64_t observed_bytes, int64_t now_ms);

  [[nodiscard]] bool drifting() const { return drifting_; }
  [[nodiscard]] int64_t bound(int64_t booked_bytes) const;

 private:
  Limits limits_;
  bool drifting_ = false;
  bool turning_ = false;      // the last looks say the opposite of drifting_
  int64_t turned_ms_ = 0;     // since then
  int64_t reported_bytes_ = 0;  // size of the difference at the last news
};

}  // namespace tandem::budget
