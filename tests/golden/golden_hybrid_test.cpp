// The trained tiny hybrid against its own float32 logits: f16 when the shared test models are
// beside the checkout, q8_0 (in the repository) always.
#include <string>

#include "engine/model/parts.h"
#include "tests/golden/golden_report.h"
#include "tests/support/catch.h"

namespace tandem_tests {
namespace {

constexpr size_t kAllCases = 100;

void compare(const std::string& path, const char* name, const HybridBounds& bounds) {
  const auto golden = read_golden("tiny-hybrid-logits.json").value();
  auto opened = ModelFixture::open(path, {.logit_rows_max = 64});
  INFO((opened.ok() ? "" : opened.error().message));
  REQUIRE(opened.ok());
  ModelFixture& fixture = **opened;
  const HybridScore score = score_hybrid(fixture, golden, kAllCases).value();
  report(name, score);
  for (const std::string& failure : check_hybrid(score, bounds)) FAIL_CHECK(failure);
  CHECK(fixture.model->parts().draft_blocks.size() == 1);
  CHECK(fixture.store->check_integrity().ok());
}

TEST_CASE("golden: tiny hybrid f16") {
  const std::string path = shared_model("tiny-hybrid-f16.gguf");
  if (skip_without(path, "tiny-hybrid-f16.gguf")) return;
  compare(path, "tiny-hybrid f16", kHybridF16Bounds);
}

TEST_CASE("golden: tiny hybrid q8_0") {
  compare(source_path("tests/models/tiny-hybrid-q8_0.gguf"), "tiny-hybrid q8_0", kHybridQ8Bounds);
}

}  // namespace
}  // namespace tandem_tests
