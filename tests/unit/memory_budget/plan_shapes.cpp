#include "tests/unit/memory_budget/plan_shapes.h"

#include <string>
#include <utility>

namespace tandem_tests {
namespace {

using tandem::Json;

Json describe(const char* architecture, int64_t file_bytes, int64_t tensor_bytes, Json keys,
              int64_t width, int64_t vocab) {
  Json none = Json::object({{"count", 0}, {"bytes", 0}});
  Json embedding = Json::array();
  embedding.push_back(width);
  embedding.push_back(vocab);
  return Json::object(
      {{"format", 1},
       {"architecture", architecture},
       {"name", "a model"},
       {"file", "model.gguf"},
       {"file_bytes", file_bytes},
       {"parts", 1},
       {"identity", "0123456789abcdef0123456789abcdef"},
       {"keys", std::move(keys)},
       {"tokenizer", Json::object({{"model", "no_vocab"}, {"tokens", none}, {"merges", none}})},
       {"tensors", Json::object({{"count", 1},
                                 {"bytes", tensor_bytes},
                                 {"bytes_by_block", Json::array()},
                                 {"embedding", std::move(embedding)}})},
       {"engine", Json::object({{"runs", false}, {"why", "a test"}, {"figures", nullptr}})}});
}

Json hybrid_keys(int64_t layers, int64_t width, int64_t heads, int64_t kv_heads, int64_t value_heads) {
  return Json::object({{"block_count", layers},
                       {"context_length", 262144},
                       {"embedding_length", width},
                       {"attention.head_count", heads},
                       {"attention.head_count_kv", kv_heads},
                       {"attention.key_length", 256},
                       {"attention.value_length", 256},
                       {"full_attention_interval", 4},
                       {"ssm.conv_kernel", 4},
                       {"ssm.state_size", 128},
                       {"ssm.group_count", 16},
                       {"ssm.time_step_rank", value_heads},
                       {"ssm.inner_size", value_heads * 128}});
}

}  // namespace

Json gemma4_26b() {
  Json kv_heads = Json::array();
  Json sliding = Json::array();
  for (int layer = 0; layer < 30; ++layer) {
    const bool full = (layer + 1) % 6 == 0;
    kv_heads.push_back(full ? 2 : 8);
    sliding.push_back(full ? 0 : 1);
  }
  Json keys = Json::object({{"block_count", 30},
                            {"context_length", 262144},
                            {"embedding_length", 2816},
                            {"feed_forward_length", 2112},
                            {"attention.head_count", 16},
                            {"attention.head_count_kv", std::move(kv_heads)},
                            {"attention.key_length", 512},
                            {"attention.value_length", 512},
                            {"attention.key_length_swa", 256},
                            {"attention.value_length_swa", 256},
                            {"attention.sliding_window", 1024},
                            {"attention.sliding_window_pattern", std::move(sliding)},
                            {"attention.shared_kv_layers", 0},
                            {"expert_count", 128},
                            {"expert_used_count", 8},
                            {"expert_feed_forward_length", 704}});
  return describe("gemma4", 14'423'581'440, 14'423'538'808, std::move(keys), 2816, 262144);
}

Json qwen35_27b() {
  Json keys = hybrid_keys(64, 5120, 24, 4, 48);
  keys.set("feed_forward_length", 17408);
  return describe("qwen35", 15'465'926'848, 15'465'875'456, std::move(keys), 5120, 248320);
}

Json gpt_oss_20b() {
  Json keys = Json::object({{"block_count", 24},
                            {"context_length", 131072},
                            {"embedding_length", 2880},
                            {"feed_forward_length", 2880},
                            {"attention.head_count", 64},
                            {"attention.head_count_kv", 8},
                            {"attention.key_length", 64},
                            {"attention.value_length", 64},
                            {"attention.sliding_window", 128},
                            {"expert_count", 32},
                            {"expert_used_count", 4},
                            {"expert_feed_forward_length", 2880}});
  return describe("gpt-oss", 13'790'000'000, 13'780'000'000, std::move(keys), 2880, 201088);
}

Json qwen35moe_35b() {
  Json keys = hybrid_keys(40, 2048, 16, 2, 32);
  keys.set("expert_count", 256);
  keys.set("expert_used_count", 8);
  keys.set("expert_feed_forward_length", 512);
  return describe("qwen35moe", 20'000'000'000, 19'990'000'000, std::move(keys), 2048, 248320);
}

Json with_key(Json described, const char* key, Json value) {
  described.find("keys")->set(key, std::move(value));
  return described;
}

}  // namespace tandem_tests
