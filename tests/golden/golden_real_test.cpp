// Real models against exact values of the same files, one test case (and tag) per model; a model
// that is not in the cache is skipped visibly.
#include <string>

#include "tests/golden/golden_report.h"
#include "tests/support/catch.h"

namespace tandem_tests {
namespace {

constexpr size_t kAll = 100'000;

void compare(const std::string& name, const std::string& file) {
  const std::string path = cached_model(file);
  if (skip_without(path, file.c_str())) return;
  const auto golden = read_golden(name + ".json").value();
  auto opened = ModelFixture::open(path, {.logit_rows_max = 64});
  INFO((opened.ok() ? "" : opened.error().message));
  REQUIRE(opened.ok());
  const RealScore score = score_real(**opened, golden, kAll, kAll).value();
  report(name.c_str(), score);
  for (const std::string& failure : check_real(score)) FAIL_CHECK(failure);
}

TEST_CASE("golden: smollm2-135m", "[smollm2]") {
  compare("smollm2-135m", "SmolLM2-135M-Instruct.Q4_1.gguf");
}

TEST_CASE("golden: qwen2.5-coder-0.5b", "[qwen05]") {
  compare("qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
}

TEST_CASE("golden: qwen2.5-coder-1.5b", "[qwen15]") {
  compare("qwen2.5-coder-1.5b", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf");
}

}  // namespace
}  // namespace tandem_tests
