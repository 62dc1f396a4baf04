// Grammars: what build() makes of parts reads the same texts as the parts do; what it refuses.
#include <functional>
#include <string>

#include "engine/grammar/grammar.h"
#include "tests/support/catch.h"
#include "tests/support/grammar_fixture.h"

namespace tandem_tests {
namespace {

using tandem::Errc;
using tandem::Result;
using tandem::engine::GrammarLimits;

bool accepts(const Grammar& grammar, std::string_view text) {
  PlainStacks stacks(grammar);
  stacks.step_all(text);
  return stacks.alive() && stacks.can_end();
}

void for_texts(std::string_view alphabet, size_t length_max,
               const std::function<void(const std::string&)>& visit) {
  std::string text;
  visit(text);
  std::vector<size_t> digits;
  for (size_t length = 1; length <= length_max; ++length) {
    digits.assign(length, 0);
    for (bool more = true; more;) {
      text.clear();
      for (const size_t digit : digits) text += alphabet[digit];
      visit(text);
      size_t i = 0;
      while (i < length && ++digits[i] == alphabet.size()) digits[i++] = 0;
      more = i < length;
    }
  }
}

TEST_CASE("random grammars read what their parts read") {
  size_t built = 0, texts = 0, members = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const TreeGrammar tree = RandomGrammar(seed).make();
    const Result<Grammar> grammar = tree.build();
    if (!grammar.ok()) continue;
    ++built;
    CAPTURE(seed);
    size_t shortest = SIZE_MAX;
    bool equal = true;
    for_texts("abc", 5, [&](const std::string& text) {
      const bool want = tree.matches(text);
      if (want && text.size() < shortest) shortest = text.size();
      if (accepts(*grammar, text) != want) {
        equal = false;
        UNSCOPED_INFO("text '" << text << "' want " << want);
      }
      ++texts;
      members += want ? 1 : 0;
    });
    REQUIRE(equal);
    // The least bytes of a text, where such a short one exists.
    if (shortest != SIZE_MAX) REQUIRE(grammar->bytes_min() == shortest);
    if (shortest == SIZE_MAX) REQUIRE(grammar->bytes_min() > 5);
    for (const Grammar::State& state : grammar->states()) {
      REQUIRE(state.bytes_to_end_min < UINT32_MAX);
    }
  }
  REQUIRE(built > 200);
  REQUIRE(members > texts / 100);
  REQUIRE(members < texts / 2);
}

TEST_CASE("left recursion is refused, however it hides") {
  GrammarBuilder b;
  const auto refused = [&](uint32_t rule) {
    const Result<Grammar> grammar = b.build(b.call(rule));
    return !grammar.ok() && grammar.error().code == Errc::invalid_argument &&
           grammar.error().message.find("left recursion") != std::string::npos;
  };
  const GrammarPart a = b.literal("a");
  SECTION("direct") {
    const uint32_t rule = b.declare_rule();
    b.define_rule(rule, b.choice(std::array{b.sequence(std::array{b.call(rule), a}), a}));
    CHECK(refused(rule));
  }
  SECTION("behind what may be empty") {
    const uint32_t rule = b.declare_rule(), blank = b.declare_rule();
    b.define_rule(blank, b.repeat(b.literal(" "), 0, -1));
    b.define_rule(rule, b.choice(std::array{b.sequence(std::array{b.call(blank), b.call(rule)}), a}));
    CHECK(refused(rule));
  }
  SECTION("through another rule") {
    const uint32_t rule = b.declare_rule(), other = b.declare_rule();
    b.define_rule(rule, b.choice(std::array{b.call(other), a}));
    b.define_rule(other, b.choice(std::array{b.call(rule), a}));
    CHECK(refused(rule));
  }
  SECTION("a call of itself and nothing else has no finite text") {
    const uint32_t rule = b.declare_rule();
    b.define_rule(rule, b.call(rule));
    const Result<Grammar> grammar = b.build(b.call(rule));
    REQUIRE(!grammar.ok());
    CHECK(grammar.error().code == Errc::invalid_argument);
  }
  SECTION("right recursion is welcome") {
    const uint32_t rule = b.declare_rule();
    b.define_rule(rule, b.choice(std::array{b.sequence(std::array{a, b.call(rule)}), a}));
    const Result<Grammar> grammar = b.build(b.call(rule));
    REQUIRE(grammar.ok());
    CHECK(accepts(*grammar, "aaa"));
    CHECK(!accepts(*grammar, ""));
  }
}

TEST_CASE("what cannot finish is dropped") {
  GrammarBuilder b;
  const uint32_t endless = b.declare_rule();
  b.define_rule(endless, b.sequence(std::array{b.literal("x"), b.call(endless)}));
  const GrammarPart dead = b.sequence(std::array{b.literal("ab"), b.call(endless)});
  const Result<Grammar> grammar = b.build(b.choice(std::array{dead, b.literal("ac")}));
  REQUIRE(grammar.ok());
  CHECK(grammar->rule_count() == 1);
  CHECK(grammar->states().size() == 3);
  CHECK(accepts(*grammar, "ac"));
  PlainStacks stacks(*grammar);
  stacks.step_all("ab");
  CHECK(!stacks.alive());
  const Result<Grammar> nothing = b.build(dead);
  REQUIRE(!nothing.ok());
  CHECK(nothing.error().code == Errc::invalid_argument);
}

TEST_CASE("alternatives share their beginnings") {
  GrammarBuilder b;
  std::vector<GrammarPart> words;
  for (int i = 0; i < 100; ++i) words.push_back(b.literal("prefix" + std::to_string(i)));
  const Result<Grammar> grammar = b.build(b.choice(words));
  REQUIRE(grammar.ok());
  for (uint32_t state = 0; state < grammar->states().size(); ++state) {
    ByteSet seen;
    for (const Grammar::Edge& edge : grammar->edges(state)) {
      for (uint32_t byte = 0; byte < 256; ++byte) {
        if (!grammar->sets()[edge.set].has(static_cast<uint8_t>(byte))) continue;
        REQUIRE(!seen.has(static_cast<uint8_t>(byte)));
        seen.add(static_cast<uint8_t>(byte));
      }
    }
  }
  CHECK(accepts(*grammar, "prefix77"));
  CHECK(!accepts(*grammar, "prefix100"));
}

TEST_CASE("a subset construction that explodes is not made") {
  // (a|b)*a(a|b){18}: 2^19 deterministic states.
  GrammarBuilder b;
  ByteSet ab;
  ab.add_range('a', 'b');
  const GrammarPart any = b.byte_of(ab);
  const Result<Grammar> grammar = b.build(
      b.sequence(std::array{b.repeat(any, 0, -1), b.literal("a"), b.repeat(any, 18, 18)}));
  REQUIRE(grammar.ok());
  CHECK(grammar->states().size() < 200);
  CHECK(accepts(*grammar, "bba" + std::string(18, 'b')));
  CHECK(!accepts(*grammar, "bbb" + std::string(18, 'b')));
}

TEST_CASE("caps are errors with their number") {
  const auto refused = [](const Result<Grammar>& grammar, const char* number) {
    return !grammar.ok() && grammar.error().code == Errc::invalid_argument &&
           grammar.error().message.find(number) != std::string::npos;
  };
  SECTION("parts") {
    GrammarBuilder b({.nodes_max = 10});
    GrammarPart part = b.empty();
    for (int i = 0; i < 20; ++i) part = b.sequence(std::array{part, b.literal("a")});
    CHECK(b.full());
    CHECK(refused(b.build(part), "10"));
  }
  SECTION("rules") {
    GrammarBuilder b({.nodes_max = 10});
    for (int i = 0; i < 20; ++i) b.define_rule(b.declare_rule(), b.literal("a"));
    CHECK(b.full());
    CHECK(refused(b.build(b.call(3)), "10"));
  }
  SECTION("states: nested repeats multiply") {
    GrammarBuilder b({.states_max = 5000});
    GrammarPart part = b.literal("a");
    for (int i = 0; i < 3; ++i) part = b.repeat(part, 100, 100);
    CHECK(refused(b.build(part), "5000"));
  }
  SECTION("a huge count ends at the cap") {
    GrammarBuilder b({.states_max = 5000});
    CHECK(refused(b.build(b.repeat(b.literal("a"), INT64_MAX, INT64_MAX)), "5000"));
    CHECK(refused(b.build(b.repeat(b.never(), 0, INT64_MAX)), "5000"));
    CHECK(refused(b.build(b.repeat(b.empty(), 1, INT64_MAX)), "5000"));
  }
  SECTION("doubling parts without bytes") {
    GrammarBuilder b;
    GrammarPart part = b.never();
    for (int i = 0; i < 60; ++i) part = b.choice(std::array{part, part});
    CHECK(refused(b.build(part), "800000"));
  }
  SECTION("edges: options that skip each other") {
    GrammarBuilder b({.edges_max = 20000});
    std::vector<GrammarPart> parts;
    for (int i = 0; i < 1000; ++i) parts.push_back(b.optional(b.literal("a" + std::to_string(i))));
    CHECK(refused(b.build(b.sequence(parts)), "20000"));
  }
}

TEST_CASE("deep nesting of parts and rules needs no stack") {
  GrammarBuilder b;
  GrammarPart part = b.literal("x");
  for (int i = 0; i < 30000; ++i) part = b.choice(std::array{b.sequence(std::array{part, b.empty()}), part});
  CHECK(!b.build(part).ok());  // past a cap, but no crash
  GrammarBuilder chain;
  GrammarPart next = chain.literal("x");
  for (int i = 0; i < 30000; ++i) {
    const uint32_t rule = chain.declare_rule();
    chain.define_rule(rule, chain.sequence(std::array{next, chain.optional(chain.literal("y"))}));
    next = chain.call(rule);
  }
  const Result<Grammar> grammar = chain.build(next);
  REQUIRE(grammar.ok());
  CHECK(grammar->bytes_min() == 1);
}

TEST_CASE("least bytes are capped, not wrapped") {
  GrammarBuilder b;
  GrammarPart part = b.literal("x");
  for (int i = 0; i < 40; ++i) {
    const uint32_t rule = b.declare_rule();
    b.define_rule(rule, b.sequence(std::array{part, part}));
    part = b.call(rule);
  }
  const Result<Grammar> grammar = b.build(part);
  REQUIRE(grammar.ok());
  CHECK(grammar->bytes_min() == UINT32_MAX - 1);
}

TEST_CASE("a rule that is called must be defined") {
  GrammarBuilder b;
  const uint32_t rule = b.declare_rule();
  const Result<Grammar> grammar = b.build(b.sequence(std::array{b.literal("a"), b.call(rule)}));
  REQUIRE(!grammar.ok());
  CHECK(grammar.error().code == Errc::invalid_argument);
}

}  // namespace
}  // namespace tandem_tests
