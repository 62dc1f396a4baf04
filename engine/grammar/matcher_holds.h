// Holds: what keeps a text away from its end, so that a walk for few tokens may skip it
// (MatcherStateInfo::hold_classes). For this folder only.
#pragma once

#include <span>

#include "engine/grammar/matcher_tables.h"

namespace tandem::engine {

// Fills in hold_classes; wants tokens_to_end.
void find_holds(const Grammar& grammar, std::span<MatcherStateInfo> infos);

}  // namespace tandem::engine
