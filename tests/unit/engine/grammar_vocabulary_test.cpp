// Masks over a real vocabulary, token by token against plain stacks: the tiny hybrid's tokenizer, which
// ships with the sources, and Qwen2.5's where it is cached.
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>

#include "engine/gguf/gguf.h"
#include "engine/grammar/matcher.h"
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

void check_vocabulary(const std::filesystem::path& path, size_t positions_min) {
  const auto file = GgufFile::open(path.string());
  REQUIRE(file.ok());
  const auto tokenizer = Tokenizer::from_gguf(file->metadata());
  REQUIRE(tokenizer.ok());
  const TokenTrie trie = TokenTrie::from_tokenizer(*tokenizer);
  const PlainMasks plain_masks(trie);
  const Grammar grammar = people();
  const Result<MatcherTables> tables = MatcherTables::build(grammar, trie);
  REQUIRE(tables.ok());
  MaskCache cache(trie);
  const std::string text =
      R"([{"name": "A\u00e9b", "role":"admin", "scores": [1.5,0, -2e3], "note":"a \"\u0041)"
      "\xE4\xBD\xA0\xC3\xA9 z"
      R"(", "any": {"k": ["\n)"
      "\xE4\xBD\xA0\xF0\x9F\x98\x80 word\", null, true, {\"x\":\"\"}]}}]";
  const auto tokens = tokenizer->encode(text);
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

TEST_CASE("masks over Qwen2.5's vocabulary") {
  const std::filesystem::path path = cached("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
  if (!std::filesystem::exists(path)) {
    WARN("skipped: " << path.string() << " is not there");
    return;
  }
  check_vocabulary(path, 30);
}

}  // namespace
}  // namespace tandem_tests
