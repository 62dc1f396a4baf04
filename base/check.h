// CHECK aborts on a bug of ours, in every build type. It is never used on input: what the world can
// get wrong is a Result. Safe on any thread; allocates nothing before it prints.
#pragma once

namespace tandem {

[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               const char* detail) noexcept;

}  // namespace tandem

#define TANDEM_CHECK_2(expression, detail)                                         \
  do {                                                                             \
    if (!(expression)) [[unlikely]] {                                              \
      ::tandem::check_failed(__FILE__, __LINE__, #expression, (detail));           \
    }                                                                              \
  } while (false)

// CHECK(i < n) or CHECK_MSG(i < n, "page index past the extent table").
#define CHECK(expression) TANDEM_CHECK_2(expression, "")
#define CHECK_MSG(expression, detail) TANDEM_CHECK_2(expression, detail)
