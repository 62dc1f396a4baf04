// Masks over a real vocabulary, token by token against plain stacks: the tiny hybrid's tokenizer, which
// ships with the sources, and Qwen2.5's where it is cached.
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>

#include "base/json.h"
#include "engine/gguf/gguf.h"
#include "engine/grammar/matcher.h"
#include "engine/grammar/schema_compiler.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/grammar_fixture.h"
#include "tests/support/json_grammar.h"

namespace tandem_tests {
namespace {

using tandem::Result;
using tandem::engine::GgufFile;
using tandem::engine::GrammarMatcher;
using tandem::engine::MaskCache;
using tandem::engine::MatcherTables;
using tandem::engine::Tokenizer;
using tandem::engine::TokenTrie;

std::filesystem::path cached(const std::string& file) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::filesystem::path base = cache != nullptr && *cache != '\0'
                                         ? std::filesystem::path(cache)
                                         : std::filesystem::path(home != nullptr ? home : "/") / ".cache";
  return base / "tandem" / "models" / file;
}

constexpr const char* kQwen = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";

std::filesystem::path shipped() {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return std::filesystem::path(root != nullptr ? root : ".") / "tests/models/tiny-hybrid-q8_0.gguf";
}

// What a token does depends on its bytes alone, and most share their beginnings: plain stacks along the
// sorted tokens, kept for each prefix in hand.
class PlainMasks {
 public:
  explicit PlainMasks(const TokenTrie& trie) : trie_(trie) {
    for (int32_t token = 0; token < static_cast<int32_t>(trie.vocab_size()); ++token) {
      if (!trie.token_bytes(token).empty()) sorted_[std::string(trie.token_bytes(token))].push_back(token);
    }
  }
  [[nodiscard]] std::vector<uint64_t> mask(const PlainStacks& start) const {
    std::vector<uint64_t> words(trie_.mask_words(), 0);
    const auto add = [&words](int32_t token) {
      words[static_cast<size_t>(token) / 64] |= uint64_t{1} << (static_cast<size_t>(token) % 64);
    };
    std::vector<PlainStacks> path = {start};  // path[i]: after i bytes of the token before
    std::string before;
    for (const auto& [text, tokens] : sorted_) {
      size_t common = 0;
      while (common < std::min(text.size(), before.size()) && text[common] == before[common]) ++common;
      path.resize(std::min(path.size(), common + 1), start);
      while (path.size() <= text.size() && path.back().alive()) {
        path.push_back(path.back());
        path.back().step(static_cast<uint8_t>(text[path.size() - 2]));
      }
      before = text.substr(0, path.size() - 1);
      if (path.size() == text.size() + 1 && path.back().alive()) {
        for (const int32_t token : tokens) add(token);
      }
    }
    if (start.can_end()) {
      for (const int32_t token : trie_.end_tokens()) add(token);
    }
    return words;
  }

 private:
  const TokenTrie& trie_;
  std::map<std::string, std::vector<int32_t>> sorted_;
};

std::string text_of_people() {
  return R"([{"name": "A\u00e9b", "role":"admin", "scores": [1.5,0, -2e3], "note":"a \"\u0041)"
         "\xE4\xBD\xA0\xC3\xA9 z"
         R"(", "any": {"k": ["\n)"
         "\xE4\xBD\xA0\xF0\x9F\x98\x80 word\", null, true, {\"x\":\"\"}]}}]";
}

Grammar people() {
  tandem::engine::GrammarBuilder builder;
  JsonRules json(builder);
  const auto item = json.object({{"name", json.short_string(2, 6)},
                                 {"role", json.one_of({"administrator", "admin", "guest"})},
                                 {"scores", json.list(json.number())},
                                 {"note", json.called_string()},
                                 {"any", json.value()}});
  auto grammar = builder.build(json.list(item));
  REQUIRE(grammar.ok());
  return *std::move(grammar);
}

Tokenizer tokenizer_of(const std::filesystem::path& path) {
  const auto file = GgufFile::open(path.string());
  REQUIRE(file.ok());
  auto tokenizer = Tokenizer::from_gguf(file->metadata());
  REQUIRE(tokenizer.ok());
  return *std::move(tokenizer);
}

// Every token by itself, with the counts of a copy.
void check_limit(const GrammarMatcher& matcher, int64_t left, const TokenTrie& trie, std::span<const uint64_t> words) {
  const int64_t budget = std::max<int64_t>(left, matcher.tokens_to_end()) - 1;
  for (int32_t token = 0; token < static_cast<int32_t>(trie.vocab_size()); ++token) {
    if (trie.is_end_token(token)) continue;
    bool want = false;
    if (!trie.token_bytes(token).empty()) {
      GrammarMatcher copy = matcher;
      const Result<bool> fits = copy.accept_token(token);
      REQUIRE(fits.ok());
      want = *fits && int64_t{copy.tokens_to_end()} <= budget;
    }
    const bool has = (words[static_cast<size_t>(token) / 64] >> (static_cast<size_t>(token) % 64) & 1) != 0;
    if (has != want) FAIL("token " << token << " '" << trie.token_bytes(token) << "' want " << want);
  }
}

// Near the end each mask has the tokens after which the rest still fits, and no other.
void check_near_end(const std::filesystem::path& path, size_t every, const Grammar& grammar, const std::string& text) {
  const Tokenizer tokenizer = tokenizer_of(path);
  const TokenTrie trie = TokenTrie::from_tokenizer(tokenizer);
  const Result<MatcherTables> tables = MatcherTables::build(grammar, trie);
  REQUIRE(tables.ok());
  std::vector<uint64_t> words(trie.mask_words());
  for (size_t at = 0; at < text.size(); at += every) {
    for (int64_t more = 0; more < 6; ++more) {
      if (every > 1 && static_cast<size_t>(more) % 3 != at % 3) continue;
      GrammarMatcher matcher(*tables);
      REQUIRE(*matcher.accept_bytes(text.substr(0, at)));
      MaskCache cache(trie);
      if (more % 2 == 1) REQUIRE(matcher.mask(cache, words).ok());  // so that the state's whole mask is there
      CAPTURE(at, more);
      const int64_t left = more == 5 ? GrammarMatcher::kNoLimit : matcher.tokens_to_end() + more;
      REQUIRE(matcher.mask(cache, words, left).ok());
      check_limit(matcher, left, trie, words);
    }
  }
}

void check_vocabulary(const std::filesystem::path& path, size_t positions_min) {
  const Tokenizer tokenizer = tokenizer_of(path);
  const TokenTrie trie = TokenTrie::from_tokenizer(tokenizer);
  const PlainMasks plain_masks(trie);
  const Grammar grammar = people();
  const Result<MatcherTables> tables = MatcherTables::build(grammar, trie);
  REQUIRE(tables.ok());
  MaskCache cache(trie);
  const std::string text = text_of_people();
  const auto tokens = tokenizer.encode(text);
  REQUIRE(tokens.ok());
  GrammarMatcher matcher(*tables);
  PlainStacks plain(grammar);
  std::vector<uint64_t> words(trie.mask_words());
  size_t positions = 0;
  for (const int32_t token : *tokens) {
    CAPTURE(positions);
    REQUIRE(matcher.mask(cache, words).ok());
    const std::vector<uint64_t> want = plain_masks.mask(plain);
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i] != want[i]) {
        const auto bit = static_cast<int32_t>(i * 64 + static_cast<size_t>(__builtin_ctzll(words[i] ^ want[i])));
        FAIL("token " << bit << " '" << trie.token_bytes(bit) << "'");
      }
    }
    const Result<bool> fits = matcher.accept_token(token);
    REQUIRE((fits.ok() && *fits));
    plain.step_all(trie.token_bytes(token));
    ++positions;
  }
  CHECK(matcher.must_end());
  CHECK(positions >= positions_min);

  // Tight limits: as many tokens as were said to be enough, chosen at random.
  std::mt19937_64 random(5);
  for (int walk = 0; walk < 40; ++walk) {
    GrammarMatcher tight(*tables);
    // Sometimes with something open already.
    if (walk % 2 == 1) REQUIRE(*tight.accept_bytes(text.substr(0, 20 + random() % (text.size() - 20))));
    int64_t left = int64_t{tight.tokens_to_end()} + walk % 4;
    for (bool ended = false; !ended && left > 0; --left) {
      REQUIRE(tight.mask(cache, words, left).ok());
      std::vector<int32_t> allowed;
      for (size_t i = 0; i < words.size(); ++i) {
        for (uint64_t word = words[i]; word != 0; word &= word - 1) {
          allowed.push_back(static_cast<int32_t>(i * 64 + static_cast<size_t>(__builtin_ctzll(word))));
        }
      }
      CAPTURE(walk, left);
      REQUIRE(!allowed.empty());
      const int32_t token = allowed[random() % allowed.size()];
      REQUIRE(*tight.accept_token(token));
      ended = trie.is_end_token(token);
    }
    REQUIRE(tight.can_end());
  }
}

TEST_CASE("masks over the tiny hybrid's vocabulary") { check_vocabulary(shipped(), 20); }

bool qwen_is_there() {
  if (std::filesystem::exists(cached(kQwen))) return true;
  WARN("skipped: " << cached(kQwen).string() << " is not there");
  return false;
}

TEST_CASE("masks over Qwen2.5's vocabulary") {
  if (qwen_is_there()) check_vocabulary(cached(kQwen), 30);
}

TEST_CASE("masks near the end, over the tiny hybrid's vocabulary") {
  check_near_end(shipped(), 1, people(), text_of_people());
}

TEST_CASE("masks near the end, over Qwen2.5's vocabulary") {
  if (qwen_is_there()) check_near_end(cached(kQwen), 29, people(), text_of_people());
}

// Strings with a few characters left, alone and beside other ways to go on.
TEST_CASE("masks of short strings") {
  const auto schema = tandem::parse_json(R"({"type":"object","additionalProperties":false,"required":["a","b","c","d","e","f"],
      "properties":{"a":{"type":"string","maxLength":7},"b":{"type":"string","minLength":2,"maxLength":4},
      "c":{"anyOf":[{"type":"string","maxLength":2},{"enum":["abcdef","x\u00e9\u4f60z"]}]},
      "d":{"type":"string","pattern":"^[^ab]{0,5}$"},"e":{"type":"string","pattern":"^(..){1,3}$"},
      "f":{"type":"string","pattern":"^[^0-9]{2}[a-z]{4}$"}}})");
  const auto grammar = tandem::engine::compile_json_schema(*schema);
  REQUIRE(grammar.ok());
  const std::string text = "{\"a\": \"w\xC3\xA9 \xF0\x9F\x98\x80\xEA\xB0\x80o\", \"b\": \"\xE4\xBD\xA0z\\n\", "
                           "\"c\": \"x\xC3\xA9\xE4\xBD\xA0z\", \"d\": \"d\\u0001,\xC3\xA9\", \"e\": \"abc\xC3\xA9\", \"f\": \"w,text\"}";
  check_near_end(shipped(), 1, *grammar, text);
  if (qwen_is_there()) check_near_end(cached(kQwen), 17, *grammar, text);
}

// Strings that need characters more than the limit leaves tokens: only long tokens help, and how long is
// known.
TEST_CASE("masks of strings that are still too short") {
  const auto schema = tandem::parse_json(R"({"type":"object","additionalProperties":false,"required":["a","b","c","d"],
      "properties":{"a":{"type":"string","minLength":12,"maxLength":12},"b":{"type":"string","minLength":9,"maxLength":40},
      "c":{"type":"string","minLength":8},"d":{"type":"string","pattern":"^[a-z]{7,}$"}}})");
  const auto grammar = tandem::engine::compile_json_schema(*schema);
  REQUIRE(grammar.ok());
  const std::string text = "{\"a\": \"w\xC3\xA9 \xF0\x9F\x98\x80\xEA\xB0\x80outputs\", \"b\": \"\xE4\xBD\xA0z\\n and so\", "
                           "\"c\": \"x\xC3\xA9 tokens\", \"d\": \"letters\"}";
  check_near_end(shipped(), 1, *grammar, text);
  if (qwen_is_there()) check_near_end(cached(kQwen), 11, *grammar, text);

  // At the end nothing but the called "er" saves tokens, and it begins like any other text.
  for (const int64_t least : {0, 3}) {
    tandem::engine::GrammarBuilder b;
    JsonRules json(b);
    const uint32_t rule = b.declare_rule();
    b.define_rule(rule, b.literal("er"));
    const auto end = b.choice(std::array{b.literal("\x01#\x01#\x01#\x01"), b.sequence(std::array{b.call(rule), b.literal("\x01")})});
    const auto two_ways = b.build(b.sequence(std::array{json.text(least, -1), end}));
    REQUIRE(two_ways.ok());
    check_near_end(shipped(), 1, *two_ways, "ab");
  }
}

// A string that has to close now, and one that may have a token more.
TEST_CASE("masks near the end look at a small part of a vocabulary") {
  if (!qwen_is_there()) return;
  const TokenTrie trie = TokenTrie::from_tokenizer(tokenizer_of(cached(kQwen)));
  tandem::engine::GrammarBuilder builder;
  JsonRules json(builder);
  const auto grammar = builder.build(json.list(json.object({{"a", json.string()}, {"b", json.called_string()}})));
  const Result<MatcherTables> tables = MatcherTables::build(*grammar, trie);
  REQUIRE(tables.ok());
  const uint64_t steps_max = trie.node_count() / 8;
  std::vector<uint64_t> words(trie.mask_words());
  for (const char* text : {"[{\"a\": \"abc", "[{\"a\": \"x\", \"b\": \"abc"}) {
    for (int64_t more = 0; more < 6; ++more) {
      CAPTURE(text, more);
      GrammarMatcher matcher(*tables, {.steps_max = steps_max});
      REQUIRE(*matcher.accept_bytes(text));
      MaskCache cache(trie);
      CHECK(matcher.mask(cache, words, matcher.tokens_to_end() + more).ok());
    }
  }
}

// Hundreds of alternatives, each of which would have to be walked over the whole vocabulary.
TEST_CASE("what a mask may cost is bounded for all its alternatives together") {
  if (!qwen_is_there()) return;
  const TokenTrie trie = TokenTrie::from_tokenizer(tokenizer_of(cached(kQwen)));
  tandem::engine::GrammarBuilder b;
  std::vector<tandem::engine::GrammarPart> ways;
  for (uint32_t i = 0; i < 400; ++i) {
    tandem::engine::ByteSet inner;  // not one run: two sets in turn
    inner.add_range(0x20, 0xFF);
    tandem::engine::ByteSet other = inner;
    other.words[1] &= ~(uint64_t{1} << (i % 60));
    const uint32_t rule = b.declare_rule();
    b.define_rule(rule, b.sequence(std::array{b.repeat(b.sequence(std::array{b.byte_of(inner), b.byte_of(other)}), 0, -1),
                                              b.literal("\n" + std::to_string(i))}));
    ways.push_back(b.sequence(std::array{b.call(rule), b.literal(";")}));
  }
  const auto grammar = b.build(b.choice(ways));
  REQUIRE(grammar.ok());
  const Result<MatcherTables> tables = MatcherTables::build(*grammar, trie);
  REQUIRE(tables.ok());
  std::vector<uint64_t> words(trie.mask_words());
  MaskCache cache(trie);
  GrammarMatcher matcher(*tables);
  REQUIRE(*matcher.accept_bytes("ab"));
  const Result<void> refused = matcher.mask(cache, words);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == tandem::Errc::exhausted);

  // What was left unfinished is not taken for a mask, and the matcher is as it was.
  GrammarMatcher patient(*tables, {.steps_max = UINT64_MAX});
  REQUIRE(*patient.accept_bytes("ab\n399"));
  REQUIRE(patient.mask(cache, words).ok());
  REQUIRE(*matcher.accept_bytes("\n399"));
  std::vector<uint64_t> same(trie.mask_words());
  REQUIRE(matcher.mask(cache, same).ok());
  CHECK(words == same);
}

}  // namespace
}  // namespace tandem_tests
