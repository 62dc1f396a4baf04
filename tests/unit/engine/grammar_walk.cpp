#include "tests/unit/engine/grammar_walk.h"

#include <algorithm>
#include <set>
#include <vector>

namespace tandem::engine::test {
namespace {

using Stack = std::vector<uint32_t>;  // states; the last one is the current one

uint64_t cost_of(const Grammar& grammar, const Grammar::Edge& edge) {
  const uint64_t rest = grammar.states()[edge.target].bytes_to_end_min;
  if (edge.rule < 0) return 1 + rest;
  const uint32_t start = grammar.rule_start(static_cast<uint32_t>(edge.rule));
  return rest + grammar.states()[start].bytes_to_end_min;
}

char random_byte(const ByteSet& set, tests::Random& random) {
  std::vector<uint8_t> bytes;
  for (uint32_t b = 0; b < 256; ++b) {
    if (set.has(static_cast<uint8_t>(b))) bytes.push_back(static_cast<uint8_t>(b));
  }
  return static_cast<char>(bytes[random.below(bytes.size())]);
}

// Every stack that is reached without reading a byte; empty stacks are complete texts.
void close(const Grammar& grammar, std::set<Stack>& stacks) {
  std::vector<Stack> work(stacks.begin(), stacks.end());
  while (!work.empty()) {
    const Stack stack = std::move(work.back());
    work.pop_back();
    if (stack.empty() || stack.size() > 2000) continue;
    std::vector<Stack> next;
    const uint32_t state = stack.back();
    if (grammar.states()[state].accepts) next.emplace_back(stack.begin(), stack.end() - 1);
    for (const Grammar::Edge& edge : grammar.edges(state)) {
      if (edge.rule < 0) continue;
      Stack pushed(stack.begin(), stack.end() - 1);
      pushed.push_back(edge.target);
      pushed.push_back(grammar.rule_start(static_cast<uint32_t>(edge.rule)));
      next.push_back(std::move(pushed));
    }
    for (Stack& found : next) {
      if (stacks.insert(found).second) work.push_back(std::move(found));
    }
  }
}

std::set<Stack> stacks_after(const Grammar& grammar, std::string_view text) {
  std::set<Stack> stacks = {{grammar.rule_start(grammar.root_rule())}};
  close(grammar, stacks);
  for (const char c : text) {
    std::set<Stack> next;
    for (const Stack& stack : stacks) {
      if (stack.empty()) continue;
      for (const Grammar::Edge& edge : grammar.edges(stack.back())) {
        if (edge.rule >= 0 || !grammar.sets()[edge.set].has(static_cast<uint8_t>(c))) continue;
        Stack moved = stack;
        moved.back() = edge.target;
        next.insert(std::move(moved));
      }
    }
    stacks = std::move(next);
    close(grammar, stacks);
    if (stacks.empty()) break;
  }
  return stacks;
}

}  // namespace

std::string random_text(const Grammar& grammar, tests::Random& random, size_t bytes_wanted) {
  std::string text;
  Stack stack = {grammar.rule_start(grammar.root_rule())};
  while (!stack.empty()) {
    const uint32_t state = stack.back();
    const auto edges = grammar.edges(state);
    const bool ends = grammar.states()[state].accepts;
    const Grammar::Edge* edge = nullptr;
    if (text.size() < bytes_wanted && stack.size() < 200) {
      const size_t choice = random.below(edges.size() + (ends ? 1 : 0));
      if (choice < edges.size()) edge = &edges[choice];
    } else if (!ends) {
      edge = &*std::min_element(edges.begin(), edges.end(), [&](const auto& a, const auto& b) {
        return cost_of(grammar, a) < cost_of(grammar, b);
      });
    }
    if (edge == nullptr) {
      stack.pop_back();
      continue;
    }
    stack.back() = edge->target;
    if (edge->rule >= 0) {
      stack.push_back(grammar.rule_start(static_cast<uint32_t>(edge->rule)));
    } else {
      text.push_back(random_byte(grammar.sets()[edge->set], random));
    }
  }
  return text;
}

bool accepts_text(const Grammar& grammar, std::string_view text) {
  return stacks_after(grammar, text).count({}) > 0;
}

bool accepts_prefix(const Grammar& grammar, std::string_view text) {
  return !stacks_after(grammar, text).empty();
}

}  // namespace tandem::engine::test
