// The default file and the reference page are what the table of keys says.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "service/config.h"
#include "tests/support/catch.h"

namespace tandem::service {
namespace {

std::string read_source(const std::string& path) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  std::ifstream file(std::string(root == nullptr ? "." : root) + "/" + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST_CASE("packaging/tandem.toml is the printed default file and has no problems") {
  const std::string text = read_source("packaging/tandem.toml");
  CHECK(text == config_default_file());
  const ParsedConfig parsed = parse_config(text, "/etc/tandem");
  CHECK(problems_text("tandem.toml", parsed.problems).empty());
  CHECK(parsed.config.server.run_dir == "/run/tandem");
}

TEST_CASE("docs/configuration.md holds the table of keys") {
  const std::string page = read_source("docs/configuration.md");
  INFO(config_reference_table());
  CHECK(page.find(config_reference_table()) != std::string::npos);
}

}  // namespace
}  // namespace tandem::service
