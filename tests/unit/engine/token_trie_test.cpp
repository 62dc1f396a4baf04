// The trie of a vocabulary: every token at its node, subtrees whole, summaries right.
#include <algorithm>
#include <set>
#include <string>

#include "engine/gguf/gguf.h"
#include "engine/grammar/token_trie.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/tiny_vocabulary.h"

namespace tandem_tests {
namespace {

using tandem::engine::TokenTrie;
using tandem::engine::Tokenizer;

TokenTrie build(const std::vector<std::string>& texts, const std::vector<int32_t>& ends = {}) {
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return TokenTrie::build(views, ends);
}

void check_whole(const TokenTrie& trie) {
  std::vector<std::string> path(1);
  size_t tokens = 0;
  for (uint32_t i = 1; i < trie.node_count(); ++i) {
    const TokenTrie::Node& node = trie.node(i);
    REQUIRE(node.depth <= path.size());
    path.resize(node.depth);
    path.push_back(path.back() + static_cast<char>(node.byte));
    for (const int32_t token : trie.tokens_at(i)) {
      REQUIRE(trie.token_bytes(token) == path.back());
      ++tokens;
    }
    REQUIRE(!trie.tokens_of_subtree(i).empty());
    size_t height = 0;
    uint32_t classes = 0;
    for (const int32_t token : trie.tokens_of_subtree(i)) {
      const std::string_view text = trie.token_bytes(token);
      REQUIRE(text.starts_with(path.back()));
      height = std::max(height, text.size() - path.back().size());
      for (const char c : text.substr(path.back().size())) {
        classes |= uint32_t{1} << TokenTrie::class_of(static_cast<uint8_t>(c));
      }
    }
    REQUIRE(node.height == height);
    REQUIRE(node.classes_below == classes);
    uint32_t at = 0;
    for (const char c : path.back()) at = trie.find_child(at, static_cast<uint8_t>(c));
    REQUIRE(at == i);
  }
  REQUIRE(tokens == trie.tokens().size());
}

TEST_CASE("nodes and tokens of a small vocabulary") {
  const TokenTrie trie = build({"b", "abc", "a", "", "abd", "abc", std::string(300, 'x'), "a\xFF", "e"}, {8});
  check_whole(trie);
  CHECK(trie.vocab_size() == 9);
  CHECK(trie.tokens().size() == 6);
  CHECK(trie.token_bytes(6).empty());  // too long
  CHECK(trie.token_bytes(8).empty());  // ends
  CHECK(trie.is_end_token(8));
  CHECK(!trie.is_end_token(7));
  CHECK(trie.single_bytes().has('a'));
  CHECK(!trie.single_bytes().has('e'));
  CHECK(!trie.single_bytes().has('c'));
  CHECK(trie.find_child(0, 'c') == 0);
  CHECK(trie.tokens_of_subtree(0).size() == 6);
}

TEST_CASE("an empty vocabulary") {
  const TokenTrie trie = build({});
  CHECK(trie.node_count() == 1);
  CHECK(trie.mask_words() == 0);
  CHECK(trie.find_child(0, 'a') == 0);
}

TEST_CASE("control tokens and end tokens of a tokenizer are left out") {
  GgufWriter writer;
  add_vocabulary(writer);
  const auto file = tandem::engine::GgufFile::from_bytes(writer.bytes());
  REQUIRE(file.ok());
  const auto tokenizer = Tokenizer::from_gguf(file->metadata());
  REQUIRE(tokenizer.ok());
  const TokenTrie trie = TokenTrie::from_tokenizer(*tokenizer);
  check_whole(trie);
  const auto id = [&](std::string_view text) { return *tokenizer->find_token(text); };
  CHECK(trie.token_bytes(id("<|im_start|>")).empty());
  CHECK(trie.token_bytes(id("<|im_end|>")).empty());
  CHECK(trie.is_end_token(id("<|im_end|>")));
  CHECK(trie.token_bytes(id("<think>")) == "<think>");  // user-defined
  CHECK(trie.token_bytes(id("hello")) == "hello");
  const std::vector<int32_t> wanted = {id("<|im_start|>")};
  const TokenTrie more = TokenTrie::from_tokenizer(*tokenizer, {.control_tokens = wanted});
  CHECK(more.token_bytes(id("<|im_start|>")) == "\xFF<|im_start|>");
  CHECK(more.as_written("<|im_start|>") == "\xFF<|im_start|>");
  CHECK(more.as_written("<|im_sta") == "<|im_sta");
  CHECK(more.as_written("<think>") == "<think>");
  CHECK(trie.as_written("<|im_start|>") == "<|im_start|>");
  // Nothing else may look like one.
  for (int32_t token = 0; token < static_cast<int32_t>(trie.vocab_size()); ++token) {
    CHECK(trie.token_bytes(token).find(TokenTrie::kControlByte) == std::string_view::npos);
  }
}

TEST_CASE("classes outside a set cover every byte that is not in it") {
  tandem::engine::ByteSet set;
  set.add_range('a', 'q');
  set.add_range(0x80, 0xBF);
  const uint32_t outside = TokenTrie::classes_outside(set);
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool covered = (outside >> TokenTrie::class_of(static_cast<uint8_t>(byte)) & 1) != 0;
    if (!set.has(static_cast<uint8_t>(byte))) CHECK(covered);
  }
  CHECK((outside >> TokenTrie::class_of('a') & 1) == 0);
}

}  // namespace
}  // namespace tandem_tests
