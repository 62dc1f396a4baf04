// TokenTrie: the tokens of a vocabulary by their bytes, for masks of constrained output. Built once when
// a model is loaded, immutable, shared by all sequences and threads; it keeps nothing of the tokenizer.
//
// Left out are tokens that write nothing, control tokens, unused tokens and end-of-generation tokens
// (those are listed apart), and tokens of more than kTokenBytesMax bytes: a mask never allows what is left out.
// Control tokens that a grammar has to write (marks of tool calls in some families) are named in the options. Their
// bytes here are kControlByte and their text: no other token has that byte, and no text, so that a control
// token is allowed just where a grammar asks for it (as_written()), and its text in pieces is not.
//
// Nodes lie in the order of a depth-first walk, so that a walk is one loop over the array:
//   for (i = 1; i < nodes.size();) { ... i = dead ? nodes[i].subtree_end : i + 1; }
// Node 0 is the root. tokens() has the tokens in the order of their nodes: those of a node are
// [tokens_first(i), tokens_first(i + 1)), those of its subtree [tokens_first(i), tokens_first(subtree_end)).
// About 16 bytes a node; 151,936 tokens make 331,000 nodes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/grammar.h"

namespace tandem::engine {

class Tokenizer;

struct TokenTrieOptions {
  std::span<const int32_t> control_tokens = {};  // taken in although they are control tokens
};

class TokenTrie {
 public:
  static constexpr char kControlByte = '\xFF';  // never in UTF-8
  static constexpr size_t kTokenBytesMax = 255;
  static constexpr uint32_t kAsciiClasses = 0x00FF'FFFF;  // classes of bytes below 0x80
  static constexpr uint32_t kLeadClasses = 0xFC00'0000;   // of bytes that begin a character of several

  struct Node {
    uint32_t subtree_end = 0;   // the first node behind the subtree
    uint32_t tokens_first = 0;  // index into tokens()
    uint32_t classes_below = 0; // bit c: some byte below this node is of class c
    uint8_t byte = 0;
    uint8_t depth = 0;          // bytes up to and with this node
    uint8_t height = 0;         // most bytes below this node
    uint8_t byte_class = 0;
    // Starts a UTF-8 character, and from here on all bytes of the subtree are well-formed, but that the last
    // character of a token may be cut.
    bool whole = false;
    bool wide = false;  // whole, and that character has several bytes
    // Of its byte and all below it.
    [[nodiscard]] uint32_t classes() const { return classes_below | uint32_t{1} << byte_class; }
  };

  [[nodiscard]] static TokenTrie from_tokenizer(const Tokenizer& tokenizer,
                                                const TokenTrieOptions& options = {});
  // bytes[id]: what token id writes; empty: left out. Fewer than 2^24 tokens.
  [[nodiscard]] static TokenTrie build(std::span<const std::string_view> bytes,
                                       std::span<const int32_t> end_tokens);

  // Behind the last node lies one more, for tokens_first(i + 1).
  [[nodiscard]] size_t node_count() const { return nodes_.size() - 1; }
  [[nodiscard]] const Node& node(uint32_t i) const { return nodes_[i]; }
  [[nodiscard]] std::span<const int32_t> tokens() const { return tokens_; }
  [[nodiscard]] std::span<const int32_t> tokens_at(uint32_t i) const {
    return tokens().subspan(nodes_[i].tokens_first, nodes_[i + 1].tokens_first - nodes_[i].tokens_first);
  }
  [[nodiscard]] std::span<const int32_t> tokens_of_subtree(uint32_t i) const {
    return tokens().subspan(nodes_[i].tokens_first,
                            nodes_[nodes_[i].subtree_end].tokens_first - nodes_[i].tokens_first);
  }
  // Places in tokens() of the subtree's tokens that are UTF-8, but for their last character, which is cut.
  [[nodiscard]] std::span<const uint32_t> cut_in_subtree(uint32_t i) const;
  // How a grammar over this vocabulary writes a marker: as a control token where it is one, else as its text.
  [[nodiscard]] std::string as_written(std::string_view marker) const;
  // Characters that begin in these bytes.
  [[nodiscard]] static uint32_t characters_in(std::string_view bytes);
  // The same of each token, in the order of tokens().
  [[nodiscard]] std::span<const uint8_t> characters() const { return characters_; }
  // The child of `parent` for this byte; 0: none.
  [[nodiscard]] uint32_t find_child(uint32_t parent, uint8_t byte) const;

  [[nodiscard]] size_t vocab_size() const { return offsets_.size() - 1; }
  [[nodiscard]] size_t mask_words() const { return (vocab_size() + 63) / 64; }
  // The mask of all tokens of the trie.
  [[nodiscard]] std::span<const uint64_t> all_tokens() const { return all_tokens_; }
  // Empty for a token that was left out.
  [[nodiscard]] std::string_view token_bytes(int32_t token) const;
  [[nodiscard]] std::span<const int32_t> end_tokens() const { return end_tokens_; }  // ascending
  [[nodiscard]] bool is_end_token(int32_t token) const;
  // Bytes that are a token of their own.
  [[nodiscard]] const ByteSet& single_bytes() const { return single_bytes_; }

  // Classes of bytes, at most 32, for Node::classes_below: those that overlap the complement of `set`.
  [[nodiscard]] static uint32_t classes_outside(const ByteSet& set);
  [[nodiscard]] static uint32_t class_of(uint8_t byte);

  // A number that no other tables of this trie have.
  [[nodiscard]] uint64_t next_tables_id() const { return tables_id_->fetch_add(1); }

  [[nodiscard]] size_t memory_bytes() const;

 private:
  TokenTrie() = default;
  void add_nodes(std::span<const int32_t> sorted);
  void close_nodes();
  void find_wide_nodes();

  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  std::vector<uint32_t> cut_;  // ascending
  std::vector<uint8_t> characters_;
  std::vector<uint64_t> all_tokens_;
  std::vector<int32_t> end_tokens_;
  ByteSet single_bytes_;
  std::vector<char> bytes_;
  std::unique_ptr<std::atomic<uint64_t>> tables_id_ = std::make_unique<std::atomic<uint64_t>>(1);
  std::vector<uint32_t> offsets_;  // of each token into bytes_; vocab_size() + 1
};

}  // namespace tandem::engine
