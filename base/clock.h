// The seam for time. Code that decides by time takes a Clock&; tests pass a FakeClock.
#pragma once

#include <chrono>
#include <cstdint>

namespace tandem {

using SteadyTime = std::chrono::steady_clock::time_point;

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual SteadyTime now() const = 0;        // monotonic
  [[nodiscard]] virtual int64_t unix_seconds() const = 0;  // wall clock, for `created` and records
};

class SystemClock final : public Clock {
 public:
  [[nodiscard]] SteadyTime now() const override { return std::chrono::steady_clock::now(); }
  [[nodiscard]] int64_t unix_seconds() const override {
    return std::chrono::duration_cast<std::chrono::seconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
};

class FakeClock final : public Clock {
 public:
  [[nodiscard]] SteadyTime now() const override { return now_; }
  [[nodiscard]] int64_t unix_seconds() const override { return unix_seconds_; }
  void advance(std::chrono::nanoseconds by) {
    now_ += by;
    unix_seconds_ += std::chrono::duration_cast<std::chrono::seconds>(by).count();
  }

 private:
  SteadyTime now_{};
  int64_t unix_seconds_ = 1'700'000'000;
};

}  // namespace tandem
