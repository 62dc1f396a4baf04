// What a script expects, held against what happened.
#pragma once

#include <string>
#include <vector>

#include "tests/hostsim/simulation.h"

namespace tandem_tests {

// One text a mismatch, with the line of the expectation; empty when all hold.
std::vector<std::string> mismatches(const Script& script, const Simulation& simulation);

}  // namespace tandem_tests
