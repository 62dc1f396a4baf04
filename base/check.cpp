#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tandem {

void check_failed(const char* file, int line, const char* expression,
                  const char* detail) noexcept {
  std::fprintf(stderr, "<0>%s:%d: check failed: %s %s\n", file, line, expression, detail);
  std::fflush(stderr);
  std::abort();
}

}  // namespace tandem
