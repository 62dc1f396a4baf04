// Bytes per token and per sequence of the families, against sums done by hand; and what a hostile
// file can say.
#include "memory_budget/shape.h"

#include <functional>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/unit/memory_budget/plan_shapes.h"

namespace tandem::budget {
namespace {

using tandem_tests::gemma4_26b;
using tandem_tests::gpt_oss_20b;
using tandem_tests::qwen35_27b;
using tandem_tests::qwen35moe_35b;
using tandem_tests::with_key;

TEST_CASE("shape: the 26B keeps 20,480 bytes a token and 200 MiB of windows") {
  const ModelShape shape = read_shape(gemma4_26b()).value();
  CHECK(shape.count(LayerKind::full) == 5);
  CHECK(shape.count(LayerKind::sliding) == 25);
  CHECK(shape.full_bytes_per_token == 5 * 2 * 2 * 512 * 2);
  CHECK(shape.full_bytes_per_token == 20'480);
  CHECK(shape.sliding_bytes_per_token == 204'800);
  CHECK(shape.window_tokens == 1024);
  CHECK(shape.sliding_bytes_per_token * shape.window_tokens == int64_t{200} << 20);
  CHECK(shape.recurrent_bytes == 0);
  CHECK(shape.weight_bytes == 14'423'538'808);
  CHECK(shape.layers[5] == LayerKind::full);
  CHECK(shape.layers[6] == LayerKind::sliding);
}

TEST_CASE("shape: the 27B keeps 65,536 bytes a token and 156,893,184 a sequence") {
  const ModelShape shape = read_shape(qwen35_27b()).value();
  CHECK(shape.count(LayerKind::full) == 16);
  CHECK(shape.count(LayerKind::recurrent) == 48);
  CHECK(shape.full_bytes_per_token == 65'536);
  CHECK(shape.sliding_bytes_per_token == 0);
  CHECK(shape.recurrent_bytes == 48 * (3 * 10'240 * 4 + 48 * 128 * 128 * 4));
  CHECK(shape.recurrent_bytes == 156'893'184);
  CHECK(shape.draft_bytes_per_token == 0);
}

TEST_CASE("shape: a draft block is behind the trunk and keeps 4,096 bytes a token") {
  Json described = with_key(with_key(qwen35_27b(), "block_count", 65), "nextn_predict_layers", 1);
  Json blocks = Json::array();
  for (int b = 0; b < 65; ++b) blocks.push_back(b == 64 ? 238'983'168 : 200'000'000);
  described.find("tensors")->set("bytes_by_block", std::move(blocks));
  const ModelShape shape = read_shape(described).value();
  CHECK(shape.draft_blocks == 1);
  CHECK(shape.layers.size() == 64);
  CHECK(shape.full_bytes_per_token == 65'536);
  CHECK(shape.draft_bytes_per_token == 4'096);
  CHECK(shape.draft_weight_bytes == 238'983'168);
}

TEST_CASE("shape: gpt-oss alternates windows of 128 tokens with full layers") {
  const ModelShape shape = read_shape(gpt_oss_20b()).value();
  CHECK(shape.layers[0] == LayerKind::sliding);
  CHECK(shape.layers[1] == LayerKind::full);
  CHECK(shape.full_bytes_per_token == 24'576);
  CHECK(shape.sliding_bytes_per_token == 24'576);
  CHECK(shape.sliding_bytes_per_token * 128 == int64_t{3} << 20);
}

TEST_CASE("shape: the hybrid mixture of experts") {
  const ModelShape shape = read_shape(qwen35moe_35b()).value();
  CHECK(shape.count(LayerKind::full) == 10);
  CHECK(shape.full_bytes_per_token == 10 * 2 * 2 * 256 * 2);
  // conv 3 x (2 x 2,048 + 4,096), state 32 x 128 x 128
  CHECK(shape.recurrent_bytes == 30 * (3 * 8'192 * 4 + 32 * 128 * 128 * 4));
}

TEST_CASE("shape: layers are told by a list as well") {
  Json recurrent = Json::array();
  for (int layer = 0; layer < 64; ++layer) recurrent.push_back(layer < 32 ? 1 : 0);
  const ModelShape shape =
      read_shape(with_key(qwen35_27b(), "attention.recurrent_layers", std::move(recurrent))).value();
  CHECK(shape.count(LayerKind::recurrent) == 32);
  CHECK(shape.layers[31] == LayerKind::recurrent);
  CHECK(shape.layers[32] == LayerKind::full);
}

TEST_CASE("shape: layers that borrow an earlier layer's cache keep nothing") {
  const ModelShape shape =
      read_shape(with_key(gemma4_26b(), "attention.shared_kv_layers", 7)).value();
  CHECK(shape.count(LayerKind::borrowing) == 7);  // the last: layers 23 and 29 are full ones
  CHECK(shape.full_bytes_per_token == 3 * 4'096);
  CHECK(shape.sliding_bytes_per_token == 20 * 8'192);
}

TEST_CASE("shape: keys and values may differ in length") {
  const ModelShape shape = read_shape(with_key(qwen35_27b(), "attention.value_length", 128)).value();
  CHECK(shape.full_bytes_per_token == 16 * 2 * 4 * (256 + 128));
}

struct Hostile {
  const char* name;
  std::function<Json()> make;
  const char* path;
};

TEST_CASE("shape: hostile metadata is an error that names the field") {
  const std::vector<Hostile> cases = {
      {"no heads", [] { return with_key(qwen35_27b(), "attention.head_count", 0); },
       "keys.attention.head_count_kv"},
      {"no kv heads", [] { return with_key(qwen35_27b(), "attention.head_count_kv", 0); },
       "keys.attention.head_count_kv"},
      {"negative", [] { return with_key(qwen35_27b(), "attention.key_length", -256); },
       "keys.attention.key_length"},
      {"huge heads", [] { return with_key(qwen35_27b(), "attention.head_count_kv", INT64_MAX); },
       "keys.attention.head_count_kv"},
      {"huge blocks", [] { return with_key(qwen35_27b(), "block_count", INT64_MAX); },
       "keys.block_count"},
      {"all drafts", [] { return with_key(with_key(qwen35_27b(), "block_count", 1),
                                          "nextn_predict_layers", 1); }, "keys.block_count"},
      {"huge state", [] { return with_key(qwen35_27b(), "ssm.state_size", int64_t{1} << 40); },
       "keys.ssm.state_size"},
      {"state heads", [] { return with_key(qwen35_27b(), "ssm.time_step_rank", 0); },
       "keys.ssm.time_step_rank"},
      {"state split", [] { return with_key(qwen35_27b(), "ssm.time_step_rank", 47); },
       "keys.ssm.inner_size"},
      {"text", [] { return with_key(qwen35_27b(), "embedding_length", "wide"); },
       "keys.embedding_length"},
      {"short list", [] { return with_key(gemma4_26b(), "attention.head_count_kv", Json::array()); },
       "keys.attention.head_count_kv"},
      {"window", [] { return with_key(gemma4_26b(), "attention.sliding_window", 0); },
       "keys.attention.sliding_window"},
      {"all borrow", [] { return with_key(gemma4_26b(), "attention.shared_kv_layers", 30); },
       "keys.attention.shared_kv_layers"},
      {"experts", [] { return with_key(gemma4_26b(), "expert_used_count", 129); },
       "keys.expert_used_count"},
      {"vocab", [] { Json d = qwen35_27b(); d.find("tensors")->set("embedding", Json::array());
                     return d; }, "keys.vocab_size"},
      {"weights", [] { Json d = qwen35_27b(); d.find("tensors")->set("bytes", INT64_MAX);
                       return d; }, "tensors.bytes"},
      {"format", [] { Json d = qwen35_27b(); d.set("format", 2); return d; }, "format"},
      {"engine", [] { Json d = qwen35_27b(); d.set("engine", nullptr); return d; }, "engine.runs"},
  };
  for (const Hostile& hostile : cases) {
    INFO(hostile.name);
    const auto shape = read_shape(hostile.make());
    REQUIRE_FALSE(shape.ok());
    CHECK(shape.error().code == Errc::corrupt);
    CHECK(shape.error().path == hostile.path);
  }
}

TEST_CASE("shape: an unknown family is refused by name, nothing is guessed") {
  Json described = qwen35_27b();
  described.set("architecture", "mamba");
  const auto shape = read_shape(described);
  REQUIRE_FALSE(shape.ok());
  CHECK(shape.error().code == Errc::invalid_argument);
  CHECK(shape.error().message.find("mamba") != std::string::npos);
  CHECK(read_shape(Json::array()).error().path == "format");
}

}  // namespace
}  // namespace tandem::budget
