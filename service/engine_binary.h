// Where tandem-engine is when the configuration does not say: beside the running program (a build
// tree), or in ../lib/tandem (an installed one).
#pragma once

#include <string>

namespace tandem::service {

std::string engine_binary_beside_us();

}  // namespace tandem::service
