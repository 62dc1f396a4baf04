// splitmix64 for tests: the same numbers on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::tests {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  size_t below(size_t n) { return static_cast<size_t>(next() % n); }
  template <typename List>
  auto pick(const List& list) {
    return list[below(list.size())];
  }

 private:
  uint64_t state_;
};

}  // namespace tandem::tests
