// The ledger of one process's budgeted memory: exact, tagged, move-only reservations. Whoever wants
// KV pages, recurrent state or workspace reserves the bytes first and holds the Reservation as long
// as the memory; its destructor gives them back. Several threads may reserve at once.
//
// Errors: exhausted, with the numbers, when the limit of the tag would be passed.
// At destruction the ledger CHECKs that every byte came home.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/mutex.h"
#include "base/result.h"

namespace tandem::budget {

enum class Tag : uint8_t { weights, kv, recurrent_state, workspace, tokenizer, checkpoint };
inline constexpr size_t kTagCount = 6;
const char* tag_name(Tag tag) noexcept;

class Ledger;

class [[nodiscard]] Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() { release(); }

  [[nodiscard]] int64_t bytes() const { return bytes_; }
  void release();
  // Of a reservation that is held. Errors of reserve(), for growth only; refused, it is as before.
  Result<void> resize(int64_t bytes);

 private:
  friend class Ledger;
  Reservation(Ledger* ledger, Tag tag, int64_t bytes) : ledger_(ledger), tag_(tag), bytes_(bytes) {}

  Ledger* ledger_ = nullptr;
  Tag tag_ = Tag::workspace;
  int64_t bytes_ = 0;
};

class Ledger {
 public:
  static constexpr int64_t kUnlimited = INT64_MAX;

  Ledger();
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // A limit below what is held already only refuses new reservations.
  void set_limit(Tag tag, int64_t bytes_max);
  Result<Reservation> reserve(Tag tag, int64_t bytes);

  [[nodiscard]] int64_t held(Tag tag) const;
  [[nodiscard]] int64_t limit(Tag tag) const;
  [[nodiscard]] int64_t held_total() const;

  // For tests: the next reservation under this tag is refused.
  void fail_next(Tag tag);

 private:
  friend class Reservation;
  Result<void> take(Tag tag, int64_t bytes);
  void give_back(Tag tag, int64_t bytes);

  mutable Mutex mutex_;
  std::array<int64_t, kTagCount> held_ TANDEM_GUARDED_BY(mutex_){};
  std::array<int64_t, kTagCount> limit_ TANDEM_GUARDED_BY(mutex_);
  std::array<bool, kTagCount> fail_next_ TANDEM_GUARDED_BY(mutex_){};
};

}  // namespace tandem::budget
