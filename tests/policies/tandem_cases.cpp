// tandem-cases FILE.jsonl ...: runs worked cases of the request rules and the answer parser. One
// line for each case that differs, then the totals; exit status 1 when a case failed or a file was
// not read.
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/policies/case_check.h"

namespace {

struct Totals {
  size_t passed = 0;
  size_t failed = 0;
};

void report(const std::string& id, const tandem::policies::Differences& differences) {
  const tandem::policies::Difference& first = differences.front();
  std::printf("%s %s expected %s got %s", id.c_str(), first.rule.c_str(), first.expected.c_str(),
              first.got.c_str());
  if (differences.size() > 1) std::printf(" (and %zu more)", differences.size() - 1);
  std::printf("\n");
}

bool run_file(const char* path, Totals& totals) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "tandem-cases: cannot read %s\n", path);
    return false;
  }
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = std::string(path) + ":" + std::to_string(number);
    const tandem::Result<tandem::Json> parsed = tandem::parse_json(line);
    tandem::policies::Differences differences;
    std::string id = place;
    if (!parsed.ok()) {
      differences.push_back({"case", "JSON", parsed.error().message});
    } else {
      const tandem::Json* name = parsed->find("id");
      if (name != nullptr && name->is_string()) id = name->as_string();
      differences = tandem::policies::check_case(*parsed);
    }
    if (differences.empty()) {
      ++totals.passed;
    } else {
      ++totals.failed;
      report(id, differences);
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: tandem-cases FILE.jsonl ...\n");
    return 2;
  }
  Totals totals;
  bool all_read = true;
  for (int i = 1; i < argc; ++i) all_read = run_file(argv[i], totals) && all_read;
  std::printf("%zu passed, %zu failed\n", totals.passed, totals.failed);
  return all_read && totals.failed == 0 ? 0 : 1;
}
