// A target with a known bug behind a few branches. tools/fuzz_all runs it first and expects the finding:
// a fuzz build without coverage counters or sanitizers would stay silent about everything.
#include <cstddef>
#include <cstdint>

namespace {

// One branch a byte, so that only a coverage-guided fuzzer gets through in seconds.
bool spells_canary(const uint8_t* data, size_t size) {
  volatile int depth = 0;  // keeps the branches apart
  if (size < 5) return false;
  if (data[0] != 't') return false;
  depth = 1;
  if (data[1] != 'a') return false;
  depth = 2;
  if (data[2] != 'n') return false;
  depth = 3;
  if (data[3] != 'd') return false;
  depth = 4;
  return data[4] == 'm' && depth == 4;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (spells_canary(data, size)) __builtin_trap();
  return 0;
}
