// Texts of a grammar: random ones, and whether one text is accepted. The acceptor keeps every stack of
// states apart and is slow on purpose: it shares nothing with the engine's matcher.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/grammar/grammar.h"

namespace tandem::engine::test {

// splitmix64: the same on every machine.
class WalkRandom {
 public:
  explicit WalkRandom(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  size_t below(size_t n) { return static_cast<size_t>(next() % n); }

 private:
  uint64_t state_;
};

// A text that the grammar accepts. Past `bytes_wanted` bytes only shortest ways to the end are taken.
std::string random_text(const Grammar& grammar, WalkRandom& random, size_t bytes_wanted);

bool accepts_text(const Grammar& grammar, std::string_view text);
// The text is the beginning of an accepted one.
bool accepts_prefix(const Grammar& grammar, std::string_view text);

}  // namespace tandem::engine::test
