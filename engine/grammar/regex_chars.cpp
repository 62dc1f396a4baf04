#include "engine/grammar/regex_chars.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/utf8.h"

namespace tandem::engine {
namespace {

constexpr CharRange kSurrogates = {0xD800, 0xDFFF};

Error too_many_states(const CharLimits& limits) {
  return make_error(Errc::invalid_argument,
                    "needs more than " + std::to_string(limits.states_max) + " states");
}

// Collects the edges of one state: one set for each target.
class EdgeSets {
 public:
  void add(const CharSet& set, uint32_t target) {
    if (!set.empty()) sets_[target].add(set);
  }
  void move_to(CharAutomaton::State& state) {
    for (auto& [target, set] : sets_) state.edges.push_back({std::move(set), target});
    sets_.clear();
  }

 private:
  std::map<uint32_t, CharSet> sets_;
};

}  // namespace

CharSet::CharSet(std::initializer_list<CharRange> ranges) {
  for (const CharRange range : ranges) add(range);
}

CharSet CharSet::all() { return {{0, kCharMax}}; }

void CharSet::add(CharRange range) {
  if (range.first < kSurrogates.first && range.last > kSurrogates.last) {
    add({range.first, kSurrogates.first - 1});
    range.first = kSurrogates.last + 1;
  }
  if (range.first >= kSurrogates.first && range.first <= kSurrogates.last) {
    range.first = kSurrogates.last + 1;
  }
  if (range.last >= kSurrogates.first && range.last <= kSurrogates.last) {
    range.last = kSurrogates.first - 1;
  }
  if (range.first > range.last) return;
  auto at = std::lower_bound(ranges_.begin(), ranges_.end(), range.first,
                             [](const CharRange& r, uint32_t c) { return r.last + 1 < c; });
  auto end = at;
  while (end != ranges_.end() && end->first <= range.last + 1) {
    range.first = std::min(range.first, end->first);
    range.last = std::max(range.last, end->last);
    ++end;
  }
  at = ranges_.erase(at, end);
  ranges_.insert(at, range);
}

void CharSet::add(const CharSet& other) {
  for (const CharRange range : other.ranges_) add(range);
}

CharSet CharSet::complement() const {
  CharSet out;
  uint32_t next = 0;
  for (const CharRange range : ranges_) {
    if (range.first > next) out.add({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kCharMax) out.add({next, kCharMax});
  return out;
}

CharSet CharSet::intersection(const CharSet& other) const {
  CharSet out;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const CharRange both = {std::max(a->first, b->first), std::min(a->last, b->last)};
    if (both.first <= both.last) out.ranges_.push_back(both);
    if (a->last < b->last) {
      ++a;
    } else {
      ++b;
    }
  }
  return out;
}

bool CharSet::has(uint32_t character) const {
  const auto at =
      std::lower_bound(ranges_.begin(), ranges_.end(), character,
                       [](const CharRange& range, uint32_t c) { return range.last < c; });
  return at != ranges_.end() && at->first <= character;
}

bool CharAutomaton::accepts(std::string_view text) const {
  if (states.empty()) return false;
  uint32_t state = 0;
  while (!text.empty()) {
    const utf8::Decoded decoded = utf8::decode(text);
    if (!decoded.valid) return false;
    text.remove_prefix(decoded.length);
    const auto& edges = states[state].edges;
    const auto edge = std::find_if(edges.begin(), edges.end(), [&](const Edge& e) {
      return e.set.has(decoded.code_point);
    });
    if (edge == edges.end()) return false;
    state = edge->target;
  }
  return states[state].accepts;
}

CharAutomaton any_text(const CharSet& set) {
  CharAutomaton out;
  out.states.push_back({true, {{set, 0}}});
  return out;
}

CharAutomaton any_text_but(std::span<const std::string> words, const CharSet& set) {
  // A tree of the words; `rest` is where a text goes that is no beginning of one.
  std::vector<std::map<uint32_t, uint32_t>> tree(1);
  std::vector<bool> is_word(1, false);
  for (const std::string& word : words) {
    uint32_t at = 0;
    std::string_view text = word;
    while (!text.empty()) {
      const utf8::Decoded decoded = utf8::decode(text);
      text.remove_prefix(decoded.length);
      const auto [child, fresh] =
          tree[at].try_emplace(decoded.code_point, static_cast<uint32_t>(tree.size()));
      at = child->second;
      if (!fresh) continue;
      tree.emplace_back();
      is_word.push_back(false);
    }
    is_word[at] = true;
  }
  const auto rest = static_cast<uint32_t>(tree.size());
  CharAutomaton out;
  out.states.resize(tree.size() + 1);
  out.states[rest] = {true, {{set, rest}}};
  for (size_t i = 0; i < tree.size(); ++i) {
    CharAutomaton::State& state = out.states[i];
    state.accepts = !is_word[i];
    CharSet taken;
    for (const auto& [character, child] : tree[i]) {
      taken.add({character, character});
      if (set.has(character)) state.edges.push_back({{{character, character}}, child});
    }
    const CharSet others = set.intersection(taken.complement());
    if (!others.empty()) state.edges.push_back({others, rest});
  }
  return trimmed(out);
}

CharAutomaton any_text_without(std::span<const std::string> words) {
  // A state is the longest beginning of a word that the text ends with.
  std::vector<std::string> begun = {""};
  std::map<std::string, uint32_t, std::less<>> number = {{"", 0}};
  for (const std::string& word : words) {
    for (size_t length = 1; length < word.size(); ++length) {
      const std::string begin = word.substr(0, length);
      if (number.try_emplace(begin, static_cast<uint32_t>(begun.size())).second) {
        begun.push_back(begin);
      }
    }
  }
  const auto ends_with_word = [&](std::string_view text) {
    return std::any_of(words.begin(), words.end(), [text](const std::string& word) {
      return text.size() >= word.size() && text.substr(text.size() - word.size()) == word;
    });
  };
  CharAutomaton out;
  out.states.resize(begun.size());
  for (size_t i = 0; i < begun.size(); ++i) {
    EdgeSets edges;
    CharSet others = {{0x80, kCharMax}};
    for (uint32_t c = 0; c < 0x80; ++c) {
      std::string text = begun[i] + static_cast<char>(c);
      if (ends_with_word(text)) continue;
      std::string_view tail = text;
      while (number.find(tail) == number.end()) tail.remove_prefix(1);
      edges.add({{c, c}}, number.find(tail)->second);
    }
    edges.add(others, 0);
    out.states[i].accepts = true;
    edges.move_to(out.states[i]);
  }
  return out;
}

Result<CharAutomaton> intersect(const CharAutomaton& a, const CharAutomaton& b,
                                const CharLimits& limits) {
  CharAutomaton out;
  if (a.empty() || b.empty()) return out;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> number;
  std::vector<std::pair<uint32_t, uint32_t>> pairs = {{0, 0}};
  number[{0, 0}] = 0;
  size_t steps = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [x, y] = pairs[i];
    CharAutomaton::State state;
    state.accepts = a.states[x].accepts && b.states[y].accepts;
    EdgeSets edges;
    for (const auto& left : a.states[x].edges) {
      for (const auto& right : b.states[y].edges) {
        steps += 1 + left.set.ranges().size() + right.set.ranges().size();
        const CharSet both = left.set.intersection(right.set);
        if (both.empty()) continue;
        const auto [found, fresh] = number.try_emplace({left.target, right.target},
                                                       static_cast<uint32_t>(pairs.size()));
        if (fresh) pairs.emplace_back(left.target, right.target);
        edges.add(both, found->second);
      }
    }
    edges.move_to(state);
    out.states.push_back(std::move(state));
    if (pairs.size() > limits.states_max || steps > limits.steps_max) return too_many_states(limits);
  }
  return trimmed(out);
}

Result<CharAutomaton> with_length(const CharAutomaton& automaton, int64_t least, int64_t most,
                                  const CharLimits& limits) {
  CharAutomaton out;
  if (automaton.empty() || (most >= 0 && least > most)) return out;
  const int64_t last = most >= 0 ? most : std::max<int64_t>(least, 0);
  std::map<std::pair<uint32_t, int64_t>, uint32_t> number;
  std::vector<std::pair<uint32_t, int64_t>> pairs = {{0, 0}};
  number[{0, 0}] = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [from, count] = pairs[i];
    CharAutomaton::State state;
    state.accepts = automaton.states[from].accepts && count >= least;
    if (most < 0 || count < most) {
      for (const auto& edge : automaton.states[from].edges) {
        const std::pair<uint32_t, int64_t> target = {edge.target, std::min(count + 1, last)};
        const auto [found, fresh] = number.try_emplace(target, static_cast<uint32_t>(pairs.size()));
        if (fresh) pairs.push_back(target);
        state.edges.push_back({edge.set, found->second});
      }
    }
    out.states.push_back(std::move(state));
    if (pairs.size() > limits.states_max) return too_many_states(limits);
  }
  return trimmed(out);
}

CharAutomaton trimmed(const CharAutomaton& automaton) {
  const size_t count = automaton.states.size();
  std::vector<std::vector<uint32_t>> sources(count);
  std::vector<uint32_t> work;
  std::vector<bool> alive(count, false);
  for (uint32_t i = 0; i < count; ++i) {
    for (const auto& edge : automaton.states[i].edges) sources[edge.target].push_back(i);
    if (!automaton.states[i].accepts) continue;
    alive[i] = true;
    work.push_back(i);
  }
  while (!work.empty()) {
    const uint32_t at = work.back();
    work.pop_back();
    for (const uint32_t source : sources[at]) {
      if (alive[source]) continue;
      alive[source] = true;
      work.push_back(source);
    }
  }
  CharAutomaton out;
  if (count == 0 || !alive[0]) return out;
  std::vector<uint32_t> number(count, UINT32_MAX);
  work = {0};
  number[0] = 0;
  for (size_t i = 0; i < work.size(); ++i) {
    CharAutomaton::State state;
    state.accepts = automaton.states[work[i]].accepts;
    for (const auto& edge : automaton.states[work[i]].edges) {
      if (!alive[edge.target]) continue;
      if (number[edge.target] == UINT32_MAX) {
        number[edge.target] = static_cast<uint32_t>(work.size());
        work.push_back(edge.target);
      }
      state.edges.push_back({edge.set, number[edge.target]});
    }
    out.states.push_back(std::move(state));
  }
  return out;
}

}  // namespace tandem::engine
