#include "engine/grammar/grammar.h"

#include "base/check.h"
#include "engine/grammar/grammar_build.h"

namespace tandem::engine {

void ByteSet::add_range(uint8_t first, uint8_t last) {
  for (uint32_t byte = first; byte <= last; ++byte) add(static_cast<uint8_t>(byte));
}

size_t Grammar::memory_bytes() const {
  return states_.capacity() * sizeof(State) + edges_.capacity() * sizeof(Edge) +
         sets_.capacity() * sizeof(ByteSet) + rule_starts_.capacity() * 2 * sizeof(uint32_t);
}

// Nodes 0 and 1 are the empty text and no text, so that there is always a part to hand out.
GrammarBuilder::GrammarBuilder(GrammarLimits limits) : limits_(limits) {
  CHECK(limits_.nodes_max >= 2 && limits_.nodes_max <= (size_t{1} << 24));
  nodes_.push_back({.kind = Node::Kind::empty});
  nodes_.push_back({.kind = Node::Kind::never});
}

GrammarPart GrammarBuilder::add(const Node& node) {
  if (nodes_.size() >= limits_.nodes_max) full_ = true;
  if (full_) return never();
  nodes_.push_back(node);
  return {static_cast<uint32_t>(nodes_.size() - 1)};
}

GrammarPart GrammarBuilder::empty() { return {0}; }
GrammarPart GrammarBuilder::never() { return {1}; }

GrammarPart GrammarBuilder::literal(std::string_view bytes) {
  if (bytes.empty()) return empty();
  // Each byte becomes a state at least once if the part is used at all.
  if (bytes.size() > limits_.states_max || literals_.size() + bytes.size() > 16 * limits_.nodes_max) {
    full_ = true;
    return never();
  }
  const auto first = static_cast<uint32_t>(literals_.size());
  literals_ += bytes;
  return add({.kind = Node::Kind::literal, .first = first, .count = static_cast<uint32_t>(bytes.size())});
}

GrammarPart GrammarBuilder::byte_of(const ByteSet& set) {
  if (set == ByteSet{}) return never();
  if (full_ || sets_.size() >= limits_.nodes_max) {
    full_ = true;
    return never();
  }
  sets_.push_back(set);
  return add({.kind = Node::Kind::byte, .first = static_cast<uint32_t>(sets_.size() - 1)});
}

GrammarPart GrammarBuilder::add_list(Node::Kind kind, std::span<const GrammarPart> parts) {
  if (full_ || children_.size() + parts.size() > 16 * limits_.nodes_max) {
    full_ = true;
    return never();
  }
  const auto first = static_cast<uint32_t>(children_.size());
  for (const GrammarPart part : parts) {
    CHECK(part.node < nodes_.size());
    children_.push_back(part.node);
  }
  return add({.kind = kind, .first = first, .count = static_cast<uint32_t>(parts.size())});
}

GrammarPart GrammarBuilder::sequence(std::span<const GrammarPart> parts) {
  if (parts.empty()) return empty();
  return parts.size() == 1 ? parts[0] : add_list(Node::Kind::sequence, parts);
}

GrammarPart GrammarBuilder::choice(std::span<const GrammarPart> parts) {
  if (parts.empty()) return never();
  return parts.size() == 1 ? parts[0] : add_list(Node::Kind::choice, parts);
}

GrammarPart GrammarBuilder::optional(GrammarPart part) { return repeat(part, 0, 1); }

GrammarPart GrammarBuilder::repeat(GrammarPart part, int64_t least, int64_t most) {
  CHECK(part.node < nodes_.size());
  if (least < 0) least = 0;
  if (most >= 0 && most < least) return never();
  if (most == 0) return empty();
  if (least == 1 && most == 1) return part;
  return add({.kind = Node::Kind::repeat, .first = part.node, .least = least, .most = most});
}

GrammarPart GrammarBuilder::network(const GrammarNetwork& network) {
  network_moves_ += network.moves.size() + network.ends.size();
  if (network.state_count > limits_.states_max || network_moves_ > limits_.edges_max) full_ = true;
  if (full_) return never();
  for (const GrammarNetwork::Move& move : network.moves) {
    CHECK(move.from < network.state_count && move.target < network.state_count);
    CHECK(move.part.node < nodes_.size());
  }
  for (const uint32_t end : network.ends) CHECK(end < network.state_count);
  networks_.push_back(network);
  return add({.kind = Node::Kind::network, .first = static_cast<uint32_t>(networks_.size() - 1)});
}

uint32_t GrammarBuilder::declare_rule() {
  if (rule_bodies_.size() >= limits_.nodes_max) {
    full_ = true;
    return 0;
  }
  rule_bodies_.push_back(-1);
  return static_cast<uint32_t>(rule_bodies_.size() - 1);
}

void GrammarBuilder::define_rule(uint32_t rule, GrammarPart body) {
  if (full_) return;  // `rule` may be no rule of its own then
  CHECK(rule < rule_bodies_.size() && body.node < nodes_.size());
  CHECK_MSG(rule_bodies_[rule] < 0, "a rule is defined twice");
  rule_bodies_[rule] = body.node;
}

GrammarPart GrammarBuilder::call(uint32_t rule) {
  CHECK(rule < rule_bodies_.size());
  return add({.kind = Node::Kind::call, .first = rule});
}

Result<Grammar> GrammarBuilder::build(GrammarPart root) const {
  return GrammarAssembler(*this).run(root);
}

}  // namespace tandem::engine
