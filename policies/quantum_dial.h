// QuantumDial: the length of a unit from what the default model's clients see. Its times between tokens beside a working
// neighbour are held against its target: what the floor makes of its times alone, and a little for hand-overs. Above the
// target units get shorter, since a token waits for whole ones; well below it they get longer again, since each hand-over
// costs. A change that does not help is taken back, and left alone for a while: then units are not what it suffers from.
//
// Bounds: from a quarter of the quantum that the step's length allows (turn_quantum, at most 3 ms) to all of it, at
// least 0.2 ms. Pure; fed with every gap. Times in nanoseconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tandem::policies {

class QuantumDial {
 public:
  // Between two tokens of steps that only decoded. contended: the neighbour had work throughout; alone: it had none. Others
  // tell nothing.
  enum class Beside : uint8_t { alone, contended, mixed };
  void see(int64_t gap_ns, Beside beside, int64_t floor_permille);

  // `most_ns`: turn_quantum of the default model's step.
  [[nodiscard]] int64_t quantum_ns(int64_t most_ns) const;
  [[nodiscard]] int64_t permille() const { return permille_; }  // of most_ns

 private:
  static constexpr size_t kGaps = 64;
  struct Window {
    std::array<int64_t, kGaps> gaps{};
    size_t seen = 0;
    void add(int64_t gap_ns) { gaps[seen++ % kGaps] = gap_ns; }
    [[nodiscard]] bool full() const { return seen >= kGaps; }
    [[nodiscard]] int64_t p90() const;
  };
  void judge(int64_t floor_permille);

  Window alone_;
  Window contended_;
  int64_t permille_ = 1000;
  int64_t before_p90_ns_ = 0;  // of the last window before units were made shorter; 0: they were not
  int rest_ = 0;               // windows in which nothing is tried
};

}  // namespace tandem::policies
