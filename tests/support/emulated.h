// Does the test run under qemu-user (tests of the arm64 preset)? Programs are some thirty times slower
// there, and a child that cannot be executed is only told by its exit status: qemu makes it by fork.
#pragma once

#include <cstdlib>

namespace tandem::tests {

inline bool emulated() { return std::getenv("TANDEM_EMULATED") != nullptr; }

}  // namespace tandem::tests
