// tandem-hostsim FILE.jsonl: docs/formats/hostsim.md. Exit status: 0 as expected, 1 a mismatch, 2 a
// script or a command line that cannot be used.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/hostsim/expect.h"
#include "tests/hostsim/simulation.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: tandem-hostsim FILE.jsonl\n");
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "tandem-hostsim: cannot read %s\n", argv[1]);
    return 2;
  }
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto script = tandem_tests::parse_script(text);
  if (!script.ok()) {
    std::fprintf(stderr, "tandem-hostsim: %s: %s\n", argv[1], script.error().message.c_str());
    return 2;
  }
  tandem_tests::Simulation simulation(*script);
  if (const auto ran = simulation.run(); !ran.ok()) {
    std::fprintf(stderr, "tandem-hostsim: %s: %s\n", argv[1], ran.error().message.c_str());
    return 2;
  }
  for (const tandem_tests::SimRecord& record : simulation.records()) {
    std::printf("%s\n", record.fields.dump().c_str());
  }
  const auto wrong = tandem_tests::mismatches(*script, simulation);
  for (const std::string& each : wrong) {
    std::printf("%s\n", tandem::Json::object({{"mismatch", each}}).dump().c_str());
  }
  return wrong.empty() ? 0 : 1;
}
