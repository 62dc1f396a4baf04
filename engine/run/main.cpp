#include <cstdio>
#include <exception>

#include "engine/run/describe.h"
#include "engine/run/engine.h"

#ifndef TANDEM_VERSION
#define TANDEM_VERSION "0.1.0"
#endif

int main(int argc, char** argv) {
  // A thread's exception would end the process anyway; here at least the reason is printed.
  try {
    const auto options = tandem::engine::parse_engine_options(
        std::span<const char* const>(argv + 1, static_cast<size_t>(argc > 0 ? argc - 1 : 0)));
    if (!options.ok()) {
      std::fprintf(stderr, "tandem-engine: %s (see --help)\n", options.error().message.c_str());
      return 2;
    }
    if (options->help) {
      std::fputs(tandem::engine::engine_help_text().data(), stdout);
      return 0;
    }
    if (options->version) {
      std::puts("tandem-engine " TANDEM_VERSION);
      return 0;
    }
    if (!options->describe.empty()) return tandem::engine::run_describe(*options);
    return tandem::engine::run_engine(*options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tandem-engine: %s\n", error.what());
    return 1;
  }
}
