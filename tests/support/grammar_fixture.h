// Grammars for tests: random ones with a reference that reads the parts themselves, a slow recogniser
// with plain stacks, and JSON by hand.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/grammar/grammar.h"

namespace tandem_tests {

using tandem::engine::ByteSet;
using tandem::engine::Grammar;
using tandem::engine::GrammarBuilder;
using tandem::engine::GrammarPart;

// A grammar as a tree, for GrammarBuilder and for reading it directly.
struct TreeNode {
  enum class Kind { empty, never, byte, literal, sequence, choice, repeat, call };
  Kind kind = Kind::empty;
  std::string bytes;  // byte: the set; literal
  std::vector<TreeNode> children;
  int64_t least = 0, most = 0;
  uint32_t rule = 0;
};

struct TreeGrammar {
  std::vector<TreeNode> rules;  // rule 0 is the root

  // All positions where a match of the node from `at` may end.
  class Reader {
   public:
    Reader(const TreeGrammar& grammar, std::string_view text) : grammar_(grammar), text_(text) {}
    bool matches() { return ends_of_rule(0, 0).contains(text_.size()); }

   private:
    using Ends = std::set<size_t>;
    Ends ends_of_rule(uint32_t rule, size_t at) {
      const auto key = std::make_pair(rule, at);
      if (const auto known = done_.find(key); known != done_.end()) return known->second;
      if (!active_.insert(key).second) return {};  // left recursion that cannot finish
      Ends ends = ends_of(grammar_.rules[rule], at);
      active_.erase(key);
      return done_[key] = std::move(ends);
    }
    Ends ends_of(const TreeNode& node, size_t at) {
      switch (node.kind) {
        case TreeNode::Kind::empty: return {at};
        case TreeNode::Kind::never: return {};
        case TreeNode::Kind::byte:
          if (at < text_.size() && node.bytes.find(text_[at]) != std::string::npos) return {at + 1};
          return {};
        case TreeNode::Kind::literal:
          if (text_.substr(at).starts_with(node.bytes)) return {at + node.bytes.size()};
          return {};
        case TreeNode::Kind::sequence: {
          Ends ends = {at};
          for (const TreeNode& child : node.children) ends = ends_from(child, ends);
          return ends;
        }
        case TreeNode::Kind::choice: {
          Ends ends;
          for (const TreeNode& child : node.children) ends.merge(ends_of(child, at));
          return ends;
        }
        case TreeNode::Kind::repeat: return ends_of_repeat(node, at);
        case TreeNode::Kind::call: return ends_of_rule(node.rule, at);
      }
      return {};
    }
    Ends ends_from(const TreeNode& node, const Ends& from) {
      Ends ends;
      for (const size_t at : from) ends.merge(ends_of(node, at));
      return ends;
    }
    Ends ends_of_repeat(const TreeNode& node, size_t at) {
      Ends now = {at};
      for (int64_t i = 0; i < node.least; ++i) now = ends_from(node.children[0], now);
      Ends all = now;
      for (int64_t i = node.least; node.most < 0 || i < node.most; ++i) {
        now = ends_from(node.children[0], now);
        const size_t before = all.size();
        all.insert(now.begin(), now.end());
        if (all.size() == before) break;
      }
      return all;
    }
    const TreeGrammar& grammar_;
    std::string_view text_;
    std::map<std::pair<uint32_t, size_t>, Ends> done_;
    std::set<std::pair<uint32_t, size_t>> active_;
  };

  [[nodiscard]] bool matches(std::string_view text) const { return Reader(*this, text).matches(); }

  [[nodiscard]] tandem::Result<Grammar> build() const {
    GrammarBuilder builder;
    for (size_t i = 0; i < rules.size(); ++i) builder.declare_rule();
    for (uint32_t i = 0; i < rules.size(); ++i) builder.define_rule(i, part(builder, rules[i]));
    return builder.build(builder.call(0));
  }

 private:
  static GrammarPart part(GrammarBuilder& builder, const TreeNode& node) {
    std::vector<GrammarPart> parts;
    for (const TreeNode& child : node.children) parts.push_back(part(builder, child));
    ByteSet set;
    switch (node.kind) {
      case TreeNode::Kind::empty: return builder.empty();
      case TreeNode::Kind::never: return builder.never();
      case TreeNode::Kind::byte:
        for (const char c : node.bytes) set.add(static_cast<uint8_t>(c));
        return builder.byte_of(set);
      case TreeNode::Kind::literal: return builder.literal(node.bytes);
      case TreeNode::Kind::sequence: return builder.sequence(parts);
      case TreeNode::Kind::choice: return builder.choice(parts);
      case TreeNode::Kind::repeat: return builder.repeat(parts[0], node.least, node.most);
      case TreeNode::Kind::call: return builder.call(node.rule);
    }
    return builder.never();
  }
};

// Random grammars over the bytes of `alphabet`. Many are left recursive or empty: build() says so.
class RandomGrammar {
 public:
  explicit RandomGrammar(uint64_t seed, std::string alphabet = "abc")
      : random_(seed), alphabet_(std::move(alphabet)) {}

  TreeGrammar make() {
    TreeGrammar grammar;
    rule_count_ = 1 + pick(4);
    for (uint32_t i = 0; i < rule_count_; ++i) grammar.rules.push_back(node(3));
    return grammar;
  }

 private:
  uint32_t pick(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
  std::string some_bytes(uint32_t least, uint32_t most) {
    std::string bytes;
    for (uint32_t n = least + pick(most - least + 1); n > 0; --n) {
      bytes += alphabet_[pick(static_cast<uint32_t>(alphabet_.size()))];
    }
    return bytes;
  }
  TreeNode node(uint32_t depth) {
    using Kind = TreeNode::Kind;
    const uint32_t kind = depth == 0 ? pick(9) : 4 + pick(16);
    TreeNode out;
    if (kind == 0) return {.kind = pick(4) == 0 ? Kind::never : Kind::empty};
    if (kind < 4) return {.kind = Kind::byte, .bytes = some_bytes(1, 3)};
    if (kind < 7) return {.kind = Kind::literal, .bytes = some_bytes(1, 4)};
    if (kind < 9) return {.kind = Kind::call, .rule = pick(rule_count_)};
    if (kind < 14) {
      out.kind = Kind::sequence;
      for (uint32_t n = 1 + pick(3); n > 0; --n) out.children.push_back(node(depth - 1));
    } else if (kind < 17) {
      out.kind = Kind::choice;
      for (uint32_t n = 1 + pick(3); n > 0; --n) out.children.push_back(node(depth - 1));
    } else {
      out.kind = Kind::repeat;
      out.children.push_back(node(depth - 1));
      out.least = pick(3);
      out.most = pick(3) == 0 ? -1 : out.least + pick(3);
    }
    return out;
  }

  std::mt19937_64 random_;
  std::string alphabet_;
  uint32_t rule_count_ = 1;
};

// Plain stacks, one by one: return states, and the state in hand on top.
class PlainStacks {
 public:
  using Stack = std::vector<uint32_t>;
  explicit PlainStacks(const Grammar& grammar) : grammar_(&grammar) {
    add({grammar.rule_start(grammar.root_rule())});
  }
  [[nodiscard]] bool alive() const { return !stacks_.empty(); }
  [[nodiscard]] bool can_end() const { return can_end_; }
  [[nodiscard]] size_t size() const { return stacks_.size(); }

  void step(uint8_t byte) {
    const std::set<Stack> before = std::exchange(stacks_, {});
    can_end_ = false;
    for (const Stack& stack : before) {
      for (const Grammar::Edge& edge : grammar_->edges(stack.back())) {
        if (edge.rule >= 0 || !grammar_->sets()[edge.set].has(byte)) continue;
        Stack next = stack;
        next.back() = edge.target;
        add(std::move(next));
      }
    }
  }
  void step_all(std::string_view bytes) {
    for (const char c : bytes) {
      if (alive()) step(static_cast<uint8_t>(c));
    }
  }

 private:
  void add(Stack first) {
    std::vector<Stack> todo = {std::move(first)};
    while (!todo.empty()) {
      const Stack stack = std::move(todo.back());
      todo.pop_back();
      if (!stacks_.insert(stack).second) continue;
      if (grammar_->states()[stack.back()].accepts) {
        Stack below(stack.begin(), stack.end() - 1);
        if (below.empty()) {
          can_end_ = true;
        } else {
          todo.push_back(std::move(below));
        }
      }
      for (const Grammar::Edge& edge : grammar_->edges(stack.back())) {
        if (edge.rule < 0) continue;
        Stack above = stack;
        above.back() = edge.target;
        above.push_back(grammar_->rule_start(static_cast<uint32_t>(edge.rule)));
        todo.push_back(std::move(above));
      }
    }
  }
  const Grammar* grammar_;
  std::set<Stack> stacks_;
  bool can_end_ = false;
};

}  // namespace tandem_tests
