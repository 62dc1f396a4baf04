#include "engine/grammar/matcher_holds.h"

#include <algorithm>
#include <vector>

namespace tandem::engine {
namespace {

// States with more to do than the one in hand that are looked through for it: the insides of a character or of
// an escape. A way that leads past them is forbidden by its first byte instead.
constexpr size_t kLookedThroughMax = 32;

ByteSet complement_of(const ByteSet& set) {
  ByteSet out;
  for (size_t i = 0; i < 4; ++i) out.words[i] = ~set.words[i];
  return out;
}

// For the threshold c = tokens_to_end of a state q: its rule stays at c or above as long as no byte is of a
// class in q's mask. The mask has the classes of all edges that lead below c, out of q and out of the states
// above c that are reached from it, and the masks of what it may become with c still to do:
//   - a state with exactly c to do;
//   - the start of a called rule whose return would lead below c: c <= cost(start) + cost(return), so the
//     text stays at c while the called rule stays at cost(start), and above its end.
// Inside of any other called rule the return alone costs c. Masks that want each other are a least fixed point.
class HoldFinder {
 public:
  HoldFinder(const Grammar& grammar, std::span<MatcherStateInfo> infos)
      : grammar_(grammar), infos_(infos) {
    for (const ByteSet& set : grammar.sets()) {
      classes_.push_back(TokenTrie::classes_outside(complement_of(set)));
    }
  }

  void run() {
    for (uint32_t state = 0; state < infos_.size(); ++state) {
      infos_[state].hold_classes = 0;
      if (infos_[state].tokens_to_end > 0) look_around(state);
    }
    spread();
  }

 private:
  struct Want {
    uint32_t wanted = 0;  // whose mask
    uint32_t by = 0;
    auto operator<=>(const Want&) const = default;
  };

  [[nodiscard]] uint32_t cost(uint32_t state) const { return infos_[state].tokens_to_end; }

  // False: there is no room to look through it.
  bool may_become(uint32_t state, uint32_t least) {
    if (cost(state) == least) {
      wanted_.push_back(state);
      return true;
    }
    if (std::ranges::find(open_, state) != open_.end()) return true;
    if (open_.size() >= kLookedThroughMax) return false;
    open_.push_back(state);
    return true;
  }

  void look_around(uint32_t state) {
    const uint32_t least = cost(state);
    uint32_t mask = 0;
    open_.assign(1, state);
    wanted_.clear();
    for (size_t i = 0; i < open_.size(); ++i) {  // grows on the way
      for (const Grammar::Edge& edge : grammar_.edges(open_[i])) {
        const bool below = cost(edge.target) < least;
        if (edge.rule < 0) {
          if (below || !may_become(edge.target, least)) mask |= classes_[edge.set];
        } else if (below) {
          wanted_.push_back(grammar_.rule_start(static_cast<uint32_t>(edge.rule)));
        } else if (!may_become(edge.target, least)) {
          wanted_.push_back(edge.target);  // it stays above more than is asked for
        }
      }
    }
    infos_[state].hold_classes = mask;
    std::ranges::sort(wanted_);
    wanted_.erase(std::unique(wanted_.begin(), wanted_.end()), wanted_.end());
    for (const uint32_t wanted : wanted_) {
      if (wanted != state) wants_.push_back({wanted, state});
    }
  }

  void spread() {
    std::ranges::sort(wants_);
    std::vector<uint32_t> changed;
    for (uint32_t state = 0; state < infos_.size(); ++state) {
      if (infos_[state].hold_classes != 0) changed.push_back(state);
    }
    while (!changed.empty()) {
      const uint32_t state = changed.back();
      changed.pop_back();
      const uint32_t mask = infos_[state].hold_classes;
      for (const Want& want : std::ranges::equal_range(wants_, state, {}, &Want::wanted)) {
        uint32_t& own = infos_[want.by].hold_classes;
        if ((own | mask) == own) continue;
        own |= mask;
        changed.push_back(want.by);
      }
    }
  }

  const Grammar& grammar_;
  std::span<MatcherStateInfo> infos_;
  std::vector<uint32_t> classes_;  // of each set, those that overlap it
  std::vector<uint32_t> open_;     // of the state in hand, as wanted_
  std::vector<uint32_t> wanted_;
  std::vector<Want> wants_;
};

}  // namespace

void find_holds(const Grammar& grammar, std::span<MatcherStateInfo> infos) {
  HoldFinder(grammar, infos).run();
}

}  // namespace tandem::engine
