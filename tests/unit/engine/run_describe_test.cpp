// What --describe says, read by the memory plan: the plan's own formulas and the engine's figures must
// be the same bytes for every family that the engine runs, or one of them is wrong.
#include "engine/run/describe.h"

#include <cstdio>
#include <string>
#include <vector>

#include "memory_budget/plan_model.h"
#include "memory_budget/shape.h"
#include "tests/support/catch.h"
#include "tests/support/engine_process.h"
#include "tests/unit/engine/random_model.h"

namespace tandem_tests {
namespace {

using tandem::Json;
using tandem::budget::ModelShape;
using tandem::engine::describe_model;
using tandem::engine::EngineOptions;

Json describe_bytes(const std::vector<std::byte>& bytes) {
  const tandem::tests::TempFolder folder;
  EngineOptions options;
  options.describe = folder.write(
      "model.gguf", std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  options.threads = 2;
  return describe_model(options).value();
}

TEST_CASE("describe: the plan's formulas are the engine's bytes, family by family") {
  for (const char* family : {"llama", "qwen2", "qwen3", "qwen35"}) {
    for (const int64_t layers : {4, 6}) {
      INFO(family << " " << layers);
      RandomModelSpec spec;
      spec.family = family;
      spec.layers = layers;
      spec.draft_blocks = spec.hybrid() && layers == 6 ? 1 : 0;
      const Json described = describe_bytes(make_random_model(spec).bytes());
      const ModelShape shape = tandem::budget::read_shape(described).value();
      REQUIRE(shape.engine.has_value());
      CHECK(shape.full_bytes_per_token * tandem::budget::kShapePageTokens ==
            shape.engine->page_bytes);
      CHECK(shape.recurrent_bytes == shape.engine->recurrent_bytes);
      CHECK((shape.recurrent_bytes > 0) == spec.hybrid());
      CHECK((shape.draft_weight_bytes > 0) == (spec.draft_blocks > 0));
      CHECK(shape.vocab_rows == spec.vocab);
      // No tokenizer in these files: planned exactly, but not servable.
      CHECK_FALSE(shape.engine_why.empty());
    }
  }
}

TEST_CASE("describe: the demo hybrid is servable and its figures agree") {
  EngineOptions options;
  options.describe =
      tandem::tests::test_environment("TANDEM_SOURCE_DIR", ".") + "/tests/models/tiny-hybrid-q8_0.gguf";
  const ModelShape shape = tandem::budget::read_shape(describe_model(options).value()).value();
  CHECK(shape.engine_why.empty());
  CHECK(shape.full_bytes_per_token * 32 == shape.engine->page_bytes);
  CHECK(shape.recurrent_bytes == shape.engine->recurrent_bytes);
  CHECK(shape.draft_blocks == 1);
  CHECK(shape.layers.size() == 8);
}

TEST_CASE("describe: a file that is no model is an error") {
  const tandem::tests::TempFolder folder;
  EngineOptions options;
  options.describe = folder.write("model.gguf", "not a model");
  CHECK(describe_model(options).error().code == tandem::Errc::corrupt);
  options.describe = folder.path("missing.gguf");
  CHECK(describe_model(options).error().code == tandem::Errc::io);
}

}  // namespace
}  // namespace tandem_tests
