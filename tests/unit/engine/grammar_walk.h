// Texts of a grammar: random ones, and whether one text is accepted. The acceptor keeps every stack of
// states apart and is slow on purpose: it shares nothing with the engine's matcher.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/grammar/grammar.h"
#include "tests/support/random.h"

namespace tandem::engine::test {

// A text that the grammar accepts. Past `bytes_wanted` bytes only shortest ways to the end are taken.
std::string random_text(const Grammar& grammar, tests::Random& random, size_t bytes_wanted);

bool accepts_text(const Grammar& grammar, std::string_view text);
// The text is the beginning of an accepted one.
bool accepts_prefix(const Grammar& grammar, std::string_view text);

}  // namespace tandem::engine::test
