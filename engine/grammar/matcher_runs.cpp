#include "engine/grammar/matcher_runs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/grammar/grammar_cost.h"

namespace tandem::engine {
namespace {

int size_of(const ByteSet& set) {
  int count = 0;
  for (const uint64_t word : set.words) count += std::popcount(word);
  return count;
}

bool contains(const ByteSet& outer, const ByteSet& inner) {
  for (size_t i = 0; i < 4; ++i) {
    if ((inner.words[i] & ~outer.words[i]) != 0) return false;
  }
  return true;
}

// The bytes that well-formed UTF-8 wants next, and what comes after them (Unicode, table 3-7).
struct WideStep {
  uint8_t first = 0, last = 0;
  uint8_t next = 0;  // of kSteps; 0: the character is whole
};
constexpr std::array<WideStep, 8> kSteps = {{{},
                                             {0x80, 0xBF, 0},
                                             {0x80, 0xBF, 1},
                                             {0x80, 0xBF, 2},
                                             {0xA0, 0xBF, 1},
                                             {0x80, 0x9F, 1},
                                             {0x90, 0xBF, 2},
                                             {0x80, 0x8F, 2}}};
// Bytes of one range are of one class.
constexpr std::array<WideStep, 13> kLeads = {{{0xC2, 0xC2, 1},
                                              {0xC3, 0xDF, 1},
                                              {0xE0, 0xE0, 4},
                                              {0xE1, 0xE1, 2},
                                              {0xE2, 0xE2, 2},
                                              {0xE3, 0xE3, 2},
                                              {0xE4, 0xEC, 2},
                                              {0xED, 0xED, 5},
                                              {0xEE, 0xEE, 2},
                                              {0xEF, 0xEF, 2},
                                              {0xF0, 0xF0, 6},
                                              {0xF1, 0xF3, 3},
                                              {0xF4, 0xF4, 7}}};

class RunFinder {
 public:
  RunFinder(const Grammar& grammar, std::span<MatcherStateInfo> infos)
      : grammar_(grammar), infos_(infos), widest_(infos.size()), wide_(infos.size()) {
    for (uint32_t state = 0; state < infos_.size(); ++state) widest_[state] = widest_edge(state);
  }

  void run() {
    find_wide_rules();
    for (uint32_t state = 0; state < infos_.size(); ++state) {
      if (widest_[state] != nullptr) wide_[state] = wide_way(state);
    }
    follow(false);
    follow(true);
    find_exact_runs();
  }

 private:
  // Where every character of several bytes leads to, and the most tokens_to_end on the way.
  struct Way {
    uint32_t target = 0;
    uint32_t tokens = 0;
  };
  enum class Mark : uint8_t { fresh, on_path, done };

  [[nodiscard]] const Grammar::Edge* widest_edge(uint32_t state) const {
    const Grammar::Edge* widest = nullptr;
    int most = 0;
    for (const Grammar::Edge& edge : grammar_.edges(state)) {
      if (edge.rule >= 0) continue;
      const int size = size_of(grammar_.sets()[edge.set]);
      if (size <= most) continue;
      most = size;
      widest = &edge;
    }
    return widest;
  }

  // Inside of a character there is no end and no call.
  [[nodiscard]] bool is_inside(uint32_t state) const { return !infos_[state].ends && !infos_[state].calls; }

  // From `state` by all bytes of the step and what must follow them; at most three levels deep.
  [[nodiscard]] std::optional<Way> way_of(uint32_t state, const WideStep& step) const {
    ByteSet wanted;
    wanted.add_range(step.first, step.last);
    ByteSet found;
    std::optional<Way> way;
    for (const Grammar::Edge& edge : grammar_.edges(state)) {
      if (edge.rule >= 0) continue;
      const ByteSet& set = grammar_.sets()[edge.set];
      bool takes = false;
      for (size_t i = 0; i < 4; ++i) {
        takes = takes || (set.words[i] & wanted.words[i]) != 0;
        found.words[i] |= set.words[i];
      }
      if (!takes) continue;
      std::optional<Way> own = Way{edge.target, 0};
      if (step.next != 0) own = is_inside(edge.target) ? way_of(edge.target, kSteps[step.next]) : std::nullopt;
      if (!own || (way && way->target != own->target)) return std::nullopt;
      if (step.next != 0) own->tokens = std::max(own->tokens, infos_[edge.target].tokens_to_end);
      way = Way{own->target, way ? std::max(way->tokens, own->tokens) : own->tokens};
    }
    if (!contains(found, wanted)) return std::nullopt;
    return way;
  }

  [[nodiscard]] std::optional<Way> own_way(uint32_t state) const {
    std::optional<Way> way;
    for (const WideStep& lead : kLeads) {
      const std::optional<Way> own = way_of(state, lead);
      if (!own || (way && way->target != own->target)) return std::nullopt;
      way = Way{own->target, way ? std::max(way->tokens, own->tokens) : own->tokens};
    }
    return way;
  }

  // Rules that read any one of those characters.
  void find_wide_rules() {
    rule_tokens_.resize(grammar_.rule_count());
    for (uint32_t rule = 0; rule < grammar_.rule_count(); ++rule) {
      const std::optional<Way> way = own_way(grammar_.rule_start(rule));
      if (way && infos_[way->target].ends) rule_tokens_[rule] = way->tokens;
    }
  }

  // By the state's own edges, or by a call, to where its widest edge leads.
  [[nodiscard]] std::optional<Way> wide_way(uint32_t state) const {
    for (const Grammar::Edge& edge : grammar_.edges(state)) {
      if (edge.rule < 0 || edge.target != widest_[state]->target) continue;
      const std::optional<uint32_t> tokens = rule_tokens_[static_cast<uint32_t>(edge.rule)];
      if (tokens) return Way{edge.target, add_costs(*tokens, infos_[edge.target].tokens_to_end)};
    }
    const std::optional<Way> way = own_way(state);
    if (way && way->target == widest_[state]->target) return way;
    return std::nullopt;
  }

  [[nodiscard]] uint32_t tokens_on_way(uint32_t state, bool wide) const {
    const uint32_t own = infos_[state].tokens_to_end;
    return wide ? std::max(own, wide_[state]->tokens) : own;
  }
  // The run of `state` goes on with that of its widest edge's target.
  [[nodiscard]] bool goes_on(uint32_t state, bool wide) const {
    const Grammar::Edge* edge = widest_[state];
    const Grammar::Edge* next = widest_[edge->target];
    if (next == nullptr || (wide && !wide_[edge->target])) return false;
    return contains(grammar_.sets()[next->set], grammar_.sets()[edge->set]) &&
           tokens_on_way(edge->target, wide) <= tokens_on_way(state, wide) &&
           tokens_on_way(edge->target, false) <= tokens_on_way(state, false);
  }
  [[nodiscard]] bool runs(uint32_t state, bool wide) const {
    return widest_[state] != nullptr && (!wide || wide_[state]);
  }

  // Along the widest edges while their sets do not shrink; then filled in backwards.
  void follow(bool wide) {
    std::vector<Mark> marks(infos_.size(), Mark::fresh);
    std::vector<uint32_t> path;
    for (uint32_t first = 0; first < infos_.size(); ++first) {
      uint32_t state = first;
      while (runs(state, wide) && marks[state] == Mark::fresh) {
        marks[state] = Mark::on_path;
        path.push_back(state);
        if (!goes_on(state, wide)) break;
        state = widest_[state]->target;
      }
      for (; !path.empty(); path.pop_back()) {
        finish(path.back(), wide, marks[widest_[path.back()]->target] == Mark::on_path);
        marks[path.back()] = Mark::done;
      }
    }
  }

  // Classes of the leads all of whose characters lead to `target`, and nowhere else, and the most tokens_to_end on the
  // way; by the state's own edges, or by one call.
  struct Leads {
    uint32_t classes = 0;
    uint32_t tokens = 0;
  };
  [[nodiscard]] Leads leads_to(uint32_t state, uint32_t target) const {
    for (const Grammar::Edge& edge : grammar_.edges(state)) {
      if (edge.rule < 0 || edge.target != target) continue;
      const std::optional<uint32_t> tokens = rule_tokens_[static_cast<uint32_t>(edge.rule)];
      if (tokens) return {TokenTrie::kLeadClasses, add_costs(*tokens, infos_[target].tokens_to_end)};
    }
    Leads out;
    uint32_t other = 0;
    for (const WideStep& lead : kLeads) {
      const uint32_t own = uint32_t{1} << TokenTrie::class_of(lead.first);
      const std::optional<Way> way = (other & own) == 0 ? way_of(state, lead) : std::nullopt;
      if (way && way->target == target) {
        out.classes |= own;
        out.tokens = std::max(out.tokens, way->tokens);
      } else {
        other |= own;
      }
    }
    out.classes &= ~other;
    return out;
  }

  // Other ways that begin with a character of `set` beside those that lead to `target`, or (wide) by a call or to no
  // target with one of several bytes; and the end of the rule, behind which anything may come.
  [[nodiscard]] bool has_other_way(uint32_t state, const ByteSet& set, bool wide, int64_t target) const {
    if (infos_[state].ends) return true;
    bool by_call = false;
    for (const Grammar::Edge& edge : grammar_.edges(state)) {
      by_call = by_call || (edge.rule >= 0 && edge.target == target && rule_tokens_[static_cast<uint32_t>(edge.rule)]);
    }
    const auto reads = [&](const Grammar::Edge& edge, bool with_wide) {
      const ByteSet& own = grammar_.sets()[edge.set];
      if (with_wide && (own.words[2] | own.words[3]) != 0) return true;
      return ((own.words[0] & set.words[0]) | (own.words[1] & set.words[1])) != 0;
    };
    for (const Grammar::Edge& edge : grammar_.edges(state)) {
      if (edge.rule < 0) {  // own edges of several bytes were looked at by leads_to()
        if (edge.target != target && reads(edge, wide && (by_call || target < 0))) return true;
        continue;
      }
      const auto rule = static_cast<uint32_t>(edge.rule);
      if (rule_tokens_[rule] && edge.target == target) continue;
      const uint32_t start = grammar_.rule_start(rule);
      if (infos_[start].ends) return true;
      for (const Grammar::Edge& first : grammar_.edges(start)) {
        if (first.rule >= 0 || reads(first, wide)) return true;
      }
    }
    return false;
  }

  // As if each were exact whose own moves are; then backwards from those that are not, and what is outside of a run
  // from what is outside further on. So a circle on which nothing is wrong is exact.
  void find_exact_runs() {
    std::vector<std::pair<uint32_t, uint32_t>> into;  // where a run goes on, from where
    std::vector<uint32_t> changed;
    for (uint32_t state = 0; state < infos_.size(); ++state) {
      MatcherStateInfo& info = infos_[state];
      changed.push_back(state);
      if (widest_[state] == nullptr) continue;
      const Grammar::Edge& edge = *widest_[state];
      const Leads leads = leads_to(state, edge.target);
      info.run_exact = is_exact(state, leads.classes != 0);
      info.exact_next = edge.target;
      info.exact_last = !goes_on_exactly(state);
      info.exact_outside = (outside_of(edge.set) & TokenTrie::kAsciiClasses) | (TokenTrie::kLeadClasses & ~leads.classes);
      info.exact_cut_tokens = leads.tokens;
      if (info.run_exact && !info.exact_last) into.emplace_back(edge.target, state);
    }
    std::ranges::sort(into);
    while (!changed.empty()) {
      const uint32_t state = changed.back();
      changed.pop_back();
      for (const auto& [target, from] : std::ranges::equal_range(into, state, {}, &std::pair<uint32_t, uint32_t>::first)) {
        MatcherStateInfo& info = infos_[from];
        const uint32_t outside = info.exact_outside | infos_[state].exact_outside;
        if (!info.run_exact || (infos_[state].run_exact && outside == info.exact_outside)) continue;
        info.run_exact = infos_[state].run_exact;
        info.exact_outside = outside;
        changed.push_back(from);
      }
    }
  }
  // Where the next state takes most of what this one takes.
  [[nodiscard]] bool goes_on_exactly(uint32_t state) const {
    const Grammar::Edge* next = widest_[widest_[state]->target];
    if (next == nullptr) return false;
    const ByteSet& own = grammar_.sets()[widest_[state]->set];
    const ByteSet& set = grammar_.sets()[next->set];
    return contains(own, set) && 4 * size_of(set) >= 3 * size_of(own);
  }
  [[nodiscard]] bool is_exact(uint32_t state, bool wide) const {
    const Grammar::Edge& edge = *widest_[state];
    const ByteSet& set = grammar_.sets()[edge.set];
    if ((set.words[2] | set.words[3]) != 0) return false;  // a byte could be a step and half a character
    if (has_other_way(state, set, wide, edge.target)) return false;
    return goes_on_exactly(state) || !has_other_way(edge.target, set, wide, -1);
  }

  uint32_t outside_of(uint32_t set) {
    const auto [found, fresh] = outside_.try_emplace(set, 0);
    if (fresh) found->second = TokenTrie::classes_outside(grammar_.sets()[set]);
    return found->second;
  }

  void finish(uint32_t state, bool wide, bool circle) {
    constexpr uint8_t kEndless = MatcherStateInfo::kRunEndless;
    MatcherStateInfo& info = infos_[state];
    const MatcherStateInfo& target = infos_[widest_[state]->target];
    uint8_t run = 1;
    if (goes_on(state, wide)) {  // on a circle all sets are equal, and so are the costs
      const uint8_t next = circle ? kEndless : wide ? target.wide_run : target.run;
      run = next == kEndless ? kEndless : static_cast<uint8_t>(next + 1);
    } else if (target.tokens_to_end > info.tokens_to_end) {
      run = 0;
    }
    if (wide) {
      info.wide_run = run;
      info.wide_tokens = tokens_on_way(state, true);
      return;
    }
    info.run = run;
    info.run_outside = outside_of(widest_[state]->set);
  }

  const Grammar& grammar_;
  std::span<MatcherStateInfo> infos_;
  std::vector<const Grammar::Edge*> widest_;
  std::vector<std::optional<Way>> wide_;
  std::vector<std::optional<uint32_t>> rule_tokens_;
  std::unordered_map<uint32_t, uint32_t> outside_;  // by set
};

}  // namespace

void find_runs(const Grammar& grammar, std::span<MatcherStateInfo> infos) {
  RunFinder(grammar, infos).run();
}

}  // namespace tandem::engine
