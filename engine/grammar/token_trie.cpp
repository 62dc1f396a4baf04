#include "engine/grammar/token_trie.h"

#include <algorithm>

#include "base/check.h"
#include "engine/tokenizer/tokenizer.h"

namespace tandem::engine {
namespace {

// Classes follow what JSON and common patterns tell apart; a class that is only partly in a set costs
// time, never a wrong mask.
constexpr std::array<uint8_t, 256> make_classes() {
  std::array<uint8_t, 256> classes{};
  const auto range = [&classes](uint32_t first, uint32_t last, uint8_t value) {
    for (uint32_t byte = first; byte <= last; ++byte) classes[byte] = value;
  };
  range(0x00, 0x1F, 0);
  range(0x20, 0x7E, 22);
  range('0', '9', 5);
  range('A', 'F', 6);
  range('G', 'Z', 7);
  range('a', 'f', 8);
  range('g', 'z', 9);
  classes['\t'] = 1;
  classes['\n'] = 2;
  classes['\r'] = 3;
  classes[' '] = 4;
  classes['"'] = 10;
  classes['\\'] = 11;
  classes['_'] = 12;
  classes['-'] = 13;
  classes['.'] = 14;
  classes[','] = 15;
  classes[':'] = 16;
  classes['{'] = classes['}'] = 17;
  classes['['] = classes[']'] = 18;
  classes['/'] = 19;
  classes['\''] = 20;
  classes['<'] = classes['>'] = 21;
  range(0x7F, 0x7F, 23);
  range(0x80, 0xBF, 24);
  range(0xC0, 0xC1, 25);
  range(0xC2, 0xDF, 26);
  range(0xE0, 0xEF, 27);
  range(0xF0, 0xF4, 28);
  // Leads of what patterns leave out: white space and the ends of lines.
  classes[0xC2] = 29;
  classes[0xE2] = 30;
  classes[0xE0] = classes[0xE1] = classes[0xE3] = classes[0xEF] = 31;
  range(0xF5, 0xFF, 25);
  return classes;
}

constexpr std::array<uint8_t, 256> kClasses = make_classes();


}  // namespace

uint32_t TokenTrie::characters_in(std::string_view bytes) {
  const auto begins = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; };
  return static_cast<uint32_t>(std::ranges::count_if(bytes, begins));
}

uint32_t TokenTrie::class_of(uint8_t byte) { return kClasses[byte]; }

uint32_t TokenTrie::classes_outside(const ByteSet& set) {
  uint32_t outside = 0;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (!set.has(static_cast<uint8_t>(byte))) outside |= uint32_t{1} << kClasses[byte];
  }
  return outside;
}

TokenTrie TokenTrie::from_tokenizer(const Tokenizer& tokenizer, const TokenTrieOptions& options) {
  std::vector<std::string_view> bytes(tokenizer.token_count());
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (tokenizer.is_control(id) || tokenizer.is_end_of_generation(id) ||
        tokenizer.token_kind(id) == TokenKind::unused) {
      continue;
    }
    const std::string_view text = tokenizer.token_bytes(id);
    if (text.find(kControlByte) == std::string_view::npos) bytes[i] = text;
  }
  std::vector<std::string> controls;
  controls.reserve(options.control_tokens.size());  // views into it stay
  for (const int32_t id : options.control_tokens) {
    CHECK(tokenizer.is_valid(id) && tokenizer.is_control(id) && !tokenizer.is_end_of_generation(id));
    controls.push_back(kControlByte + std::string(tokenizer.token_bytes(id)));
    bytes[static_cast<size_t>(id)] = controls.back();
  }
  return build(bytes, tokenizer.end_of_generation_tokens());
}

TokenTrie TokenTrie::build(std::span<const std::string_view> bytes,
                           std::span<const int32_t> end_tokens) {
  CHECK(bytes.size() < (size_t{1} << 24));
  TokenTrie trie;
  trie.end_tokens_.assign(end_tokens.begin(), end_tokens.end());
  std::sort(trie.end_tokens_.begin(), trie.end_tokens_.end());
  std::vector<int32_t> sorted;
  trie.offsets_.reserve(bytes.size() + 1);
  trie.offsets_.push_back(0);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string_view token = bytes[i];
    if (!token.empty() && token.size() <= kTokenBytesMax && !trie.is_end_token(id)) {
      trie.bytes_.insert(trie.bytes_.end(), token.begin(), token.end());
      sorted.push_back(id);
      if (token.size() == 1) trie.single_bytes_.add(static_cast<uint8_t>(token[0]));
    }
    trie.offsets_.push_back(static_cast<uint32_t>(trie.bytes_.size()));
  }
  // string_view compares as unsigned bytes; equal bytes keep the order of the ids.
  std::sort(sorted.begin(), sorted.end(), [&trie](int32_t a, int32_t b) {
    const int order = trie.token_bytes(a).compare(trie.token_bytes(b));
    return order != 0 ? order < 0 : a < b;
  });
  trie.all_tokens_.assign(trie.mask_words(), 0);
  for (const int32_t token : sorted) {
    const auto bit = static_cast<uint32_t>(token);
    trie.all_tokens_[bit / 64] |= uint64_t{1} << (bit % 64);
  }
  trie.add_nodes(sorted);
  trie.close_nodes();
  trie.find_wide_nodes();
  return trie;
}

void TokenTrie::add_nodes(std::span<const int32_t> sorted) {
  nodes_.emplace_back();
  tokens_.assign(sorted.begin(), sorted.end());
  std::string_view previous;
  for (uint32_t t = 0; t < sorted.size(); ++t) {
    const std::string_view token = token_bytes(sorted[t]);
    const auto common = static_cast<size_t>(
        std::mismatch(previous.begin(), previous.end(), token.begin(), token.end()).first -
        previous.begin());
    for (size_t depth = common; depth < token.size(); ++depth) {
      nodes_.push_back({.tokens_first = t,
                        .byte = static_cast<uint8_t>(token[depth]),
                        .depth = static_cast<uint8_t>(depth + 1),
                        .byte_class = static_cast<uint8_t>(class_of(static_cast<uint8_t>(token[depth])))});
    }
    previous = token;
  }
  const auto count = static_cast<uint32_t>(sorted.size());
  nodes_.push_back({.subtree_end = static_cast<uint32_t>(nodes_.size()) + 1, .tokens_first = count});
}

// Ends, heights and classes, from the back: children lie behind their parents.
void TokenTrie::close_nodes() {
  const auto count = static_cast<uint32_t>(node_count());
  std::vector<uint32_t> parents;  // the path to the node in hand
  std::vector<uint32_t> parent_of(count, 0);
  for (uint32_t i = 0; i < count; ++i) {
    while (!parents.empty() && nodes_[parents.back()].depth >= nodes_[i].depth) parents.pop_back();
    parent_of[i] = parents.empty() ? 0 : parents.back();
    parents.push_back(i);
  }
  for (uint32_t i = 0; i < count; ++i) nodes_[i].subtree_end = i + 1;
  for (uint32_t i = count; i-- > 1;) {
    const Node& node = nodes_[i];
    Node& parent = nodes_[parent_of[i]];
    parent.subtree_end = std::max(parent.subtree_end, node.subtree_end);
    parent.height = std::max<uint8_t>(parent.height, static_cast<uint8_t>(node.height + 1));
    parent.classes_below |= node.classes();
  }
}

// Forwards what each node's bytes want next, backwards whether all below is well-formed.
void TokenTrie::find_wide_nodes() {
  enum : uint8_t { kWhole, kOne, kTwo, kThree, kAfterE0, kAfterED, kAfterF0, kAfterF4, kBad };
  const auto next = [](uint8_t state, uint8_t byte) -> uint8_t {
    const auto within = [byte](uint8_t first, uint8_t last, uint8_t then) -> uint8_t {
      return byte >= first && byte <= last ? then : uint8_t{kBad};
    };
    switch (state) {
      case kOne: return within(0x80, 0xBF, kWhole);
      case kTwo: return within(0x80, 0xBF, kOne);
      case kThree: return within(0x80, 0xBF, kTwo);
      case kAfterE0: return within(0xA0, 0xBF, kOne);
      case kAfterED: return within(0x80, 0x9F, kOne);
      case kAfterF0: return within(0x90, 0xBF, kTwo);
      case kAfterF4: return within(0x80, 0x8F, kTwo);
      case kWhole: break;
      default: return kBad;
    }
    if (byte < 0x80) return kWhole;
    if (byte >= 0xC2 && byte <= 0xDF) return kOne;
    if (byte == 0xE0) return kAfterE0;
    if (byte == 0xED) return kAfterED;
    if (byte >= 0xE1 && byte <= 0xEF) return kTwo;
    if (byte == 0xF0) return kAfterF0;
    if (byte == 0xF4) return kAfterF4;
    return within(0xF1, 0xF3, kThree);
  };
  const auto count = static_cast<uint32_t>(node_count());
  std::vector<uint8_t> states(count, kWhole);  // after the node's bytes
  std::array<uint8_t, kTokenBytesMax + 1> path{};
  for (uint32_t i = 1; i < count; ++i) {
    Node& node = nodes_[i];
    const uint8_t before = path[size_t{node.depth} - 1];
    states[i] = path[node.depth] = next(before, node.byte);
    node.whole = before == kWhole;
    if (states[i] == kWhole || states[i] == kBad) continue;
    for (uint32_t t = node.tokens_first; t < nodes_[i + 1].tokens_first; ++t) cut_.push_back(t);
  }
  uint32_t bad = UINT32_MAX;  // the first malformed node behind the one in hand
  for (uint32_t i = count; i-- > 1;) {
    if (states[i] == kBad) bad = i;
    nodes_[i].whole = nodes_[i].whole && bad >= nodes_[i].subtree_end;
    nodes_[i].wide = nodes_[i].whole && nodes_[i].byte >= 0x80;
  }
  for (const int32_t token : tokens_) {
    characters_.push_back(static_cast<uint8_t>(characters_in(token_bytes(token))));
  }
}

std::span<const uint32_t> TokenTrie::cut_in_subtree(uint32_t i) const {
  if ((nodes_[i].classes() & ~kAsciiClasses) == 0) return {};
  const auto first = std::ranges::lower_bound(cut_, nodes_[i].tokens_first);
  const auto last = std::ranges::lower_bound(cut_, nodes_[nodes_[i].subtree_end].tokens_first);
  return {first, last};
}

std::string TokenTrie::as_written(std::string_view marker) const {
  std::string control = kControlByte + std::string(marker);
  uint32_t node = 0;
  for (const char c : control) {
    node = find_child(node, static_cast<uint8_t>(c));
    if (node == 0) return std::string(marker);
  }
  return tokens_at(node).empty() ? std::string(marker) : control;
}

uint32_t TokenTrie::find_child(uint32_t parent, uint8_t byte) const {
  const uint32_t end = nodes_[parent].subtree_end;
  for (uint32_t i = parent + 1; i < end; i = nodes_[i].subtree_end) {
    if (nodes_[i].byte == byte) return i;
    if (nodes_[i].byte > byte) break;
  }
  return 0;
}

std::string_view TokenTrie::token_bytes(int32_t token) const {
  CHECK(token >= 0 && static_cast<size_t>(token) < vocab_size());
  const auto i = static_cast<size_t>(token);
  return std::string_view(bytes_.data() + offsets_[i], offsets_[i + 1] - offsets_[i]);
}

bool TokenTrie::is_end_token(int32_t token) const {
  return std::binary_search(end_tokens_.begin(), end_tokens_.end(), token);
}

size_t TokenTrie::memory_bytes() const {
  return nodes_.capacity() * sizeof(Node) + tokens_.capacity() * sizeof(int32_t) + bytes_.capacity() +
         cut_.capacity() * sizeof(uint32_t) + characters_.capacity() +
         offsets_.capacity() * sizeof(uint32_t) + all_tokens_.capacity() * sizeof(uint64_t) + end_tokens_.capacity() * sizeof(int32_t);
}

}  // namespace tandem::engine
