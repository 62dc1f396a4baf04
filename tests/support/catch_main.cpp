// The one place where Catch2 v2 compiles its implementation; v3 brings its own main.
#if !__has_include(<catch2/catch_test_macros.hpp>)
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#else
namespace tandem_tests {
int catch_main_is_in_the_library = 0;
}
#endif
