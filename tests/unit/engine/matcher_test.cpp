// Masks of a matcher against plain stacks, token by token; the promise about token limits; copies, caps
// and depth. A small vocabulary over three letters.
#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <string>

#include "engine/grammar/matcher.h"
#include "tests/support/catch.h"
#include "tests/support/grammar_fixture.h"

namespace tandem_tests {
namespace {

using tandem::Errc;
using tandem::Result;
using tandem::engine::GrammarMatcher;
using tandem::engine::MaskCache;
using tandem::engine::MatcherTables;
using tandem::engine::StackLimits;
using tandem::engine::TokenTrie;

// Ids: single bytes first, then pieces (some twice), a token without bytes, two that end.
struct SmallVocabulary {
  std::vector<std::string> texts;
  std::vector<int32_t> ends;
  explicit SmallVocabulary(uint64_t seed, std::string_view alphabet = "abc") {
    std::mt19937_64 random(seed);
    for (const char c : alphabet) texts.push_back(std::string(1, c));
    for (int i = 0; i < 60; ++i) {
      std::string text;
      for (uint64_t n = 2 + random() % 6; n > 0; --n) text += alphabet[random() % alphabet.size()];
      texts.push_back(text);
    }
    texts.push_back(texts[5]);
    texts.push_back("");
    ends = {static_cast<int32_t>(texts.size()), static_cast<int32_t>(texts.size() + 1)};
    texts.push_back("a");  // an end token is never its text
    texts.push_back("");
  }
  [[nodiscard]] TokenTrie trie() const {
    std::vector<std::string_view> views(texts.begin(), texts.end());
    return TokenTrie::build(views, ends);
  }
};

bool has(std::span<const uint64_t> words, int32_t token) {
  return (words[static_cast<size_t>(token) / 64] >> (static_cast<size_t>(token) % 64) & 1) != 0;
}

std::vector<int32_t> tokens_of(std::span<const uint64_t> words, size_t vocab) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < vocab; ++i) {
    if (has(words, static_cast<int32_t>(i))) tokens.push_back(static_cast<int32_t>(i));
  }
  return tokens;
}

// The mask that plain stacks and, for limits, the counts of copies give.
void check_mask(GrammarMatcher& matcher, const PlainStacks& plain, const TokenTrie& trie,
                MaskCache& cache, int64_t tokens_left, std::vector<uint64_t>& words) {
  REQUIRE(matcher.mask(cache, words, tokens_left).ok());
  for (int32_t token = 0; token < static_cast<int32_t>(trie.vocab_size()); ++token) {
    bool want = false;
    const std::string_view bytes = trie.token_bytes(token);
    if (trie.is_end_token(token)) {
      want = plain.can_end();
    } else if (!bytes.empty()) {
      PlainStacks after = plain;
      after.step_all(bytes);
      want = after.alive();
      if (want && tokens_left != GrammarMatcher::kNoLimit) {
        GrammarMatcher copy = matcher;
        const Result<bool> fits = copy.accept_token(token);
        REQUIRE((fits.ok() && *fits));
        const int64_t budget = std::max<int64_t>(tokens_left, matcher.tokens_to_end()) - 1;
        want = int64_t{copy.tokens_to_end()} <= budget;
      }
    }
    if (has(words, token) != want) {
      FAIL("token " << token << " '" << bytes << "' want " << want << " left " << tokens_left);
    }
  }
}

TEST_CASE("masks are what plain stacks say, over random grammars and walks") {
  size_t walks = 0, steps = 0, seconds = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Result<Grammar> grammar = RandomGrammar(seed).make().build();
    if (!grammar.ok()) continue;
    const SmallVocabulary vocabulary(seed);
    const TokenTrie trie = vocabulary.trie();
    MaskCache cache(trie);
    const Result<MatcherTables> tables = MatcherTables::build(*grammar, trie);
    REQUIRE(tables.ok());
    std::mt19937_64 random(seed);
    std::vector<uint64_t> words(trie.mask_words());
    for (int walk = 0; walk < 4; ++walk, ++walks) {
      GrammarMatcher matcher(*tables);
      PlainStacks plain(*grammar);
      CAPTURE(seed, walk);
      std::string text;
      for (int step = 0; step < 12; ++step, ++steps) {
        if (plain.size() > 300) break;  // the reference is slow, not the matcher
        CAPTURE(text);
        REQUIRE(matcher.can_end() == plain.can_end());
        check_mask(matcher, plain, trie, cache, GrammarMatcher::kNoLimit, words);
        const std::vector<int32_t> allowed = tokens_of(words, trie.vocab_size());
        REQUIRE(!allowed.empty());
        const int32_t token = allowed[random() % allowed.size()];
        const Result<bool> fits = matcher.accept_token(token);
        REQUIRE((fits.ok() && *fits));
        if (trie.is_end_token(token)) break;
        plain.step_all(trie.token_bytes(token));
        text += trie.token_bytes(token);
        seconds += step > 0 ? 1 : 0;
      }
    }
  }
  CHECK(walks > 500);
  CHECK(seconds > 800);  // walks go on behind their first token
}

TEST_CASE("masks under a limit are what the counts of copies say") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    // Letters of one class of bytes, and of three: what keeps from the end is known by class.
    const std::string alphabet = seed % 2 == 0 ? "abc" : "aZ\"";
    const Result<Grammar> grammar = RandomGrammar(seed, alphabet).make().build();
    if (!grammar.ok()) continue;
    const SmallVocabulary vocabulary(seed, alphabet);
    const TokenTrie trie = vocabulary.trie();
    MaskCache cache(trie);
    const Result<MatcherTables> tables = MatcherTables::build(*grammar, trie);
    REQUIRE(tables.ok());
    std::mt19937_64 random(seed);
    std::vector<uint64_t> words(trie.mask_words());
    GrammarMatcher matcher(*tables);
    PlainStacks plain(*grammar);
    for (int step = 0; step < 8; ++step) {
      if (plain.size() > 300) break;
      CAPTURE(seed, step);
      for (int64_t more = 0; more < 3; ++more) {
        const int64_t left = matcher.tokens_to_end() + more;
        if (left > 0) check_mask(matcher, plain, trie, cache, left, words);
      }
      check_mask(matcher, plain, trie, cache, GrammarMatcher::kNoLimit, words);
      const std::vector<int32_t> allowed = tokens_of(words, trie.vocab_size());
      const int32_t token = allowed[random() % allowed.size()];
      REQUIRE(*matcher.accept_token(token));
      if (trie.is_end_token(token)) break;
      plain.step_all(trie.token_bytes(token));
    }
  }
}

TEST_CASE("whatever is sampled, a text ends complete within its limit") {
  size_t walks = 0, at_the_limit = 0, above_one = 0;
  for (uint64_t seed = 0; seed < 800; ++seed) {
    const TreeGrammar tree = RandomGrammar(seed).make();
    const Result<Grammar> grammar = tree.build();
    if (!grammar.ok()) continue;
    const SmallVocabulary vocabulary(seed + 7);
    const TokenTrie trie = vocabulary.trie();
    MaskCache cache(trie);
    const Result<MatcherTables> tables = MatcherTables::build(*grammar, trie);
    REQUIRE(tables.ok());
    above_one += tables->tokens_min() > 1 ? 1 : 0;
    std::mt19937_64 random(seed);
    std::vector<uint64_t> words(trie.mask_words());
    for (int walk = 0; walk < 12; ++walk, ++walks) {
      int64_t left = int64_t{tables->tokens_min()} + walk % 4;
      GrammarMatcher matcher(*tables);
      CAPTURE(seed, walk, left);
      std::string text;
      for (bool ended = false; !ended && left > 0;) {
        REQUIRE(int64_t{matcher.tokens_to_end()} <= left);
        REQUIRE(matcher.mask(cache, words, left).ok());
        std::vector<int32_t> allowed = tokens_of(words, trie.vocab_size());
        // Half of the walks put the end off as long as they can.
        if (walk % 2 == 0 && allowed.size() > vocabulary.ends.size()) {
          std::erase_if(allowed, [&](int32_t token) { return trie.is_end_token(token); });
        }
        REQUIRE(!allowed.empty());
        const int32_t token = allowed[random() % allowed.size()];
        REQUIRE(*matcher.accept_token(token));
        ended = trie.is_end_token(token);
        if (!ended) text += trie.token_bytes(token);
        if (!ended) --left;
      }
      CAPTURE(text);
      REQUIRE(matcher.can_end());
      if (text.size() < 60) REQUIRE(tree.matches(text));
      at_the_limit += left == 0 ? 1 : 0;
    }
  }
  CHECK(walks > 2000);
  CHECK(at_the_limit > walks / 4);
  CHECK(above_one > 50);
}

TEST_CASE("the least number of tokens uses tokens of several bytes") {
  GrammarBuilder b;
  const Result<Grammar> grammar =
      b.build(b.sequence(std::array{b.literal("{\"name\":"), b.literal("\"\"}")}));
  REQUIRE(grammar.ok());
  std::vector<std::string> texts = {"{", "\"", "n", "a", "m", "e", ":", "}", "name", "{\"", "\":", "\"}"};
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const TokenTrie trie = TokenTrie::build(views, {});
  const Result<MatcherTables> tables = MatcherTables::build(*grammar, trie);
  REQUIRE(tables.ok());
  CHECK(grammar->bytes_min() == 11);
  CHECK(tables->tokens_min() == 5);  // {" name ": " "}
}

TEST_CASE("a vocabulary without the bytes of a grammar") {
  GrammarBuilder b;
  const std::vector<std::string> texts = {"a", "b", "ab", "c"};
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const TokenTrie trie = TokenTrie::build(views, {});
  const auto impossible = b.build(b.literal("abz"));
  const Result<MatcherTables> none = MatcherTables::build(*impossible, trie);
  REQUIRE(!none.ok());
  CHECK(none.error().code == Errc::invalid_argument);
  // One of two ways can be written: tokens that lead into the other one are not allowed.
  const auto half = b.build(b.choice(std::array{b.literal("abz"), b.literal("ca")}));
  const Result<MatcherTables> tables = MatcherTables::build(*half, trie);
  REQUIRE(tables.ok());
  MaskCache cache(trie);
  std::vector<uint64_t> words(trie.mask_words());
  GrammarMatcher matcher(*tables);
  REQUIRE(matcher.mask(cache, words).ok());
  CHECK(tokens_of(words, 4) == std::vector<int32_t>{3});
}

TEST_CASE("letters that lead away from a near end are not taken as one run") {
  // [a-f] 0, or [a-f] [a-f]+ 01234: the second letter costs four tokens more.
  GrammarBuilder b;
  ByteSet letters;
  letters.add_range('a', 'f');
  const GrammarPart letter = b.byte_of(letters);
  const GrammarPart far = b.sequence(std::array{b.repeat(letter, 1, -1), b.literal("01234")});
  const auto grammar = b.build(b.sequence(std::array{letter, b.choice(std::array{b.literal("0"), far})}));
  const std::vector<std::string> texts = {"a", "ab", "abc", "0", "1", "2", "3", "4"};
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const TokenTrie trie = TokenTrie::build(views, {});
  const Result<MatcherTables> tables = MatcherTables::build(*grammar, trie);
  REQUIRE(tables->tokens_min() == 2);
  MaskCache cache(trie);
  std::vector<uint64_t> words(trie.mask_words());
  GrammarMatcher matcher(*tables);
  REQUIRE(matcher.mask(cache, words, 5).ok());
  CHECK(tokens_of(words, 8) == std::vector<int32_t>{0});
  REQUIRE(matcher.mask(cache, words, 6).ok());
  CHECK(tokens_of(words, 8) == std::vector<int32_t>{0, 1, 2});
}

// S -> '[' S ']' | 'x', as two rules so that nothing is a tail call.
Grammar brackets() {
  GrammarBuilder b;
  const uint32_t rule = b.declare_rule();
  b.define_rule(rule, b.choice(std::array{
                          b.sequence(std::array{b.literal("["), b.call(rule), b.literal("]")}),
                          b.literal("x")}));
  return *b.build(b.call(rule));
}

TEST_CASE("deep nesting") {
  const std::vector<std::string> texts = {"[", "]", "x", "[[[[", "]]"};
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const TokenTrie trie = TokenTrie::build(views, {});
  const Result<MatcherTables> tables = MatcherTables::build(brackets(), trie);
  REQUIRE(tables.ok());
  MaskCache cache(trie);
  std::vector<uint64_t> words(trie.mask_words());
  GrammarMatcher matcher(*tables);
  constexpr uint32_t kDepth = 20000;
  for (uint32_t i = 0; i < kDepth; ++i) REQUIRE(*matcher.accept_bytes("["));
  CHECK(matcher.tokens_to_end() == kDepth + 1);
  REQUIRE(matcher.mask(cache, words, kDepth + 1).ok());
  CHECK(tokens_of(words, 5) == std::vector<int32_t>{2});  // no room to open another
  REQUIRE(*matcher.accept_bytes("x"));
  REQUIRE(matcher.mask(cache, words).ok());
  CHECK(tokens_of(words, 5) == std::vector<int32_t>{1, 4});
  const std::string most(kDepth - 1, ']');
  REQUIRE(*matcher.accept_bytes(most));
  REQUIRE(matcher.mask(cache, words).ok());
  CHECK(tokens_of(words, 5) == std::vector<int32_t>{1});  // "]]" is one too many
  REQUIRE(*matcher.accept_bytes("]"));
  CHECK(matcher.can_end());
  CHECK(matcher.must_end());
  const Result<bool> more = matcher.accept_bytes("]");
  CHECK((more.ok() && !*more));
}

TEST_CASE("the cap on nesting is an error that leaves the matcher as it was") {
  const std::vector<std::string> texts = {"[", "]", "x"};
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const TokenTrie trie = TokenTrie::build(views, {});
  const Result<MatcherTables> tables = MatcherTables::build(brackets(), trie);
  GrammarMatcher matcher(*tables, {.frames_max = 1500});
  const std::string open(1400, '[');
  REQUIRE(*matcher.accept_bytes(open));
  const Result<bool> over = matcher.accept_bytes(open);
  REQUIRE(!over.ok());
  CHECK(over.error().code == Errc::exhausted);
  REQUIRE(*matcher.accept_bytes("x"));
  REQUIRE(*matcher.accept_bytes(std::string(1400, ']')));
  CHECK(matcher.must_end());
}

TEST_CASE("what was closed is forgotten") {
  // Pairs one after the other, each deep: without compaction the frames of all would add up.
  GrammarBuilder b;
  const uint32_t rule = b.declare_rule();
  b.define_rule(rule, b.choice(std::array{
                          b.sequence(std::array{b.literal("["), b.call(rule), b.literal("]")}),
                          b.sequence(std::array{b.literal("("), b.call(rule), b.literal(")")}),
                          b.literal("x")}));
  const auto grammar = b.build(b.repeat(b.call(rule), 0, -1));
  const std::vector<std::string> texts = {"[", "]", "x", "(", ")"};
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const TokenTrie trie = TokenTrie::build(views, {});
  const Result<MatcherTables> tables = MatcherTables::build(*grammar, trie);
  GrammarMatcher matcher(*tables, {.frames_max = 4000});
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    std::string open, close;
    for (int i = 0; i < 300; ++i) {
      const bool square = random() % 2 == 0;
      open += square ? "[" : "(";
      close.insert(close.begin(), square ? ']' : ')');
    }
    REQUIRE(*matcher.accept_bytes(open + "x"));
    REQUIRE(*matcher.accept_bytes(close));
    CHECK(matcher.can_end());
  }
}

TEST_CASE("ambiguity costs states, not readings") {
  // Each '[' can be of two kinds that differ at their ends only: 2^n plain stacks.
  GrammarBuilder b;
  const uint32_t rule = b.declare_rule();
  b.define_rule(rule, b.choice(std::array{
                          b.sequence(std::array{b.literal("["), b.call(rule), b.literal("]")}),
                          b.sequence(std::array{b.literal("["), b.call(rule), b.literal(")")}),
                          b.literal("x")}));
  const auto grammar = b.build(b.call(rule));
  const std::vector<std::string> texts = {"[", "]", "x", ")", "])", "x])]"};
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const TokenTrie trie = TokenTrie::build(views, {});
  const Result<MatcherTables> tables = MatcherTables::build(*grammar, trie);
  MaskCache cache(trie);
  std::vector<uint64_t> words(trie.mask_words());
  GrammarMatcher matcher(*tables);
  REQUIRE(*matcher.accept_bytes(std::string(500, '[')));
  REQUIRE(matcher.mask(cache, words).ok());
  CHECK(tokens_of(words, 6) == std::vector<int32_t>{0, 2, 5});
  REQUIRE(*matcher.accept_bytes("x"));
  std::string close;
  for (int i = 0; i < 500; ++i) close += i % 3 == 0 ? ']' : ')';
  REQUIRE(*matcher.accept_bytes(close));
  CHECK(matcher.must_end());
}

TEST_CASE("the cap on parallel stacks is an error") {
  GrammarBuilder b;
  std::vector<GrammarPart> ways;
  for (int i = 0; i < 100; ++i) {
    const uint32_t rule = b.declare_rule();
    b.define_rule(rule, b.literal("same" + std::to_string(i)));
    ways.push_back(b.call(rule));
  }
  const auto grammar = b.build(b.choice(ways));
  std::vector<std::string> texts = {"s", "a", "m", "e"};
  for (char c = '0'; c <= '9'; ++c) texts.push_back(std::string(1, c));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const TokenTrie trie = TokenTrie::build(views, {});
  const Result<MatcherTables> tables = MatcherTables::build(*grammar, trie);
  MaskCache cache(trie);
  std::vector<uint64_t> words(trie.mask_words());
  GrammarMatcher tight(*tables, {.items_max = 50});
  CHECK(tight.accept_bytes("s").error().code == Errc::exhausted);
  CHECK(tight.mask(cache, words).error().code == Errc::exhausted);
  GrammarMatcher wide(*tables);
  REQUIRE(*wide.accept_bytes("same"));
  REQUIRE(wide.mask(cache, words).ok());
  CHECK(tokens_of(words, texts.size()).size() == 10);
}

TEST_CASE("copies go their own ways, and end tokens end") {
  const SmallVocabulary vocabulary(1);
  const TokenTrie trie = vocabulary.trie();
  GrammarBuilder b;
  const auto grammar = b.build(b.sequence(std::array{b.literal("ab"), b.repeat(b.literal("c"), 0, -1)}));
  const Result<MatcherTables> tables = MatcherTables::build(*grammar, trie);
  MaskCache cache(trie);
  std::vector<uint64_t> words(trie.mask_words());
  GrammarMatcher matcher(*tables);
  const int32_t end = vocabulary.ends[0];
  CHECK(!*matcher.accept_token(end));
  CHECK(!*matcher.accept_token(static_cast<int32_t>(vocabulary.texts.size() - 3)));  // no bytes
  REQUIRE(*matcher.accept_bytes("a"));
  GrammarMatcher copy = matcher;
  REQUIRE(*copy.accept_bytes("bcc"));
  CHECK(copy.can_end());
  CHECK(!copy.must_end());
  CHECK(!matcher.can_end());
  CHECK(!*matcher.accept_bytes("c"));
  REQUIRE(*matcher.accept_bytes("b"));
  REQUIRE(*copy.accept_token(end));
  REQUIRE(copy.mask(cache, words).ok());
  CHECK(tokens_of(words, trie.vocab_size()) == vocabulary.ends);
  CHECK(!*copy.accept_bytes("c"));
  // No room for text: only the end.
  REQUIRE(matcher.mask(cache, words, 0).ok());
  CHECK(tokens_of(words, trie.vocab_size()) == vocabulary.ends);
}

TEST_CASE("the cache forgets what is old and stays within its bytes") {
  const SmallVocabulary vocabulary(3);
  const TokenTrie trie = vocabulary.trie();
  constexpr size_t kBytes = 20000;
  MaskCache cache(trie, {.bytes_max = kBytes});
  std::vector<uint64_t> words(trie.mask_words());
  GrammarBuilder b;
  const auto grammar = b.build(b.literal(std::string(2000, 'a')));
  const Result<MatcherTables> tables = MatcherTables::build(*grammar, trie);
  GrammarMatcher matcher(*tables);
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(matcher.mask(cache, words).ok());
    CHECK(has(words, 0));
    REQUIRE(cache.memory_bytes() <= kBytes);
    REQUIRE(*matcher.accept_bytes("a"));
  }
  CHECK(cache.fills() == 1000);
  REQUIRE(matcher.mask(cache, words).ok());
  REQUIRE(matcher.mask(cache, words).ok());
  CHECK(cache.fills() == 1001);
}

}  // namespace
}  // namespace tandem_tests
