// tandemd: the gateway and supervisor. See docs/architecture.md and docs/configuration.md.
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "service/app.h"
#include "service/config.h"
#include "service/engine_binary.h"
#include "service/version.h"

namespace {

constexpr const char* kHelp = R"(tandemd: hosts two language models behind one HTTP interface.

usage: tandemd [--config FILE]

  --config FILE   the configuration (default /etc/tandem/tandem.toml)
  --version       print the version and exit
  --help          this text

It runs in the foreground and logs to stderr. SIGTERM lets running answers end, stops the engines and
exits with 0. Administer it with tandemctl.
Exit codes: 0 stopped in order, 1 it could not start, 2 wrong usage or a wrong configuration.
)";

tandem::log::Level level_of(std::string_view name) {
  if (name == "debug") return tandem::log::Level::debug;
  if (name == "warning") return tandem::log::Level::warning;
  return name == "error" ? tandem::log::Level::error : tandem::log::Level::info;
}

int run(const std::vector<std::string_view>& arguments) {
  std::string path = "/etc/tandem/tandem.toml";
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--help" || arguments[i] == "-h") return std::fputs(kHelp, stdout) < 0;
    if (arguments[i] == "--version") {
      std::printf("tandemd %s\n", std::string(tandem::service::kVersion).c_str());
      return 0;
    }
    if (arguments[i] != "--config" || i + 1 == arguments.size()) {
      std::fprintf(stderr, "tandemd: unknown argument %s; tandemd --help lists them\n",
                   std::string(arguments[i]).c_str());
      return 2;
    }
    path = arguments[++i];
  }
  auto config = tandem::service::load_config(path);
  if (!config.ok()) {
    std::fprintf(stderr, "%s\n", config.error().message.c_str());
    return 2;
  }
  if (config->engines.binary.empty()) config->engines.binary = tandem::service::engine_binary_beside_us();
  if (config->engines.relay.empty()) config->engines.relay = tandem::service::binary_beside_us("tandem-relay");
  if (config->guard.binary.empty()) config->guard.binary = tandem::service::binary_beside_us("tandem-guard");
  tandem::log::init("tandemd", level_of(config->server.log_level));
  const auto done = tandem::service::run_app(*config);
  if (done.ok()) return 0;
  tandem::log::error(done.error().message);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    // Out of memory at start: nothing of ours throws.
    std::fprintf(stderr, "tandemd: %s\n", e.what());
    return 1;
  }
}
