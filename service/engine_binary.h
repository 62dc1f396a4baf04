// Where tandem-engine is when the configuration does not say: beside the running program (a build
// tree), or in ../lib/tandem (an installed one).
#pragma once

#include <string>

namespace tandem::service {

std::string engine_binary_beside_us();
// The same for another program of ours, such as "tandem-guard".
std::string binary_beside_us(const std::string& name);

}  // namespace tandem::service
