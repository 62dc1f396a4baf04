// What a model file may not contain: each case is refused with a message that names the object and
// its numbers, before anything is built from it.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/model.h"
#include "engine/model/parts.h"
#include "tests/support/catch.h"
#include "tests/unit/engine/random_model.h"

namespace tandem_tests {
namespace {

using tandem::Errc;
using tandem::Error;
using tandem::engine::GgufFile;
using tandem::engine::Model;

Error load_error(std::vector<std::byte> bytes) {
  const GgufFile file = GgufFile::from_bytes(std::move(bytes)).value();
  const auto model = Model::load(file);
  REQUIRE(!model.ok());
  return model.error();
}

struct BadSpec {
  const char* name;
  std::function<void(RandomModelSpec&)> change;
  Errc code;
  const char* message;  // a part of it
};

TEST_CASE("model load: numbers that contradict each other are refused") {
  const std::vector<BadSpec> cases = {
      {"kv heads", [](auto& s) { s.heads = 5; s.kv_heads = 3; }, Errc::corrupt, "5 heads over 3"},
      {"no heads", [](auto& s) { s.heads = 0; }, Errc::corrupt, "head_count"},
      {"no kv heads", [](auto& s) { s.kv_heads = 0; }, Errc::corrupt, "head_count_kv"},
      {"head dim", [](auto& s) { s.head_dim = 12; }, Errc::invalid_argument, "head dimension 12"},
      {"odd rotation", [](auto& s) { s.rope_dims = 7; }, Errc::corrupt, "7 is odd"},
      {"rotation past head", [](auto& s) { s.rope_dims = 10; }, Errc::corrupt, "dimension_count"},
      {"scaling type", [](auto& s) { s.rope_scaling = "longrope"; }, Errc::invalid_argument,
       "longrope"},
      {"scaling factor", [](auto& s) { s.rope_scaling = "linear"; s.rope_factor = 0; },
       Errc::corrupt, "scaling.factor"},
      {"rope base", [](auto& s) { s.rope_base = 0.5; }, Errc::corrupt, "freq_base"},
      {"epsilon", [](auto& s) { s.norm_epsilon = 0; }, Errc::corrupt, "rms_epsilon"},
      {"context", [](auto& s) { s.context = 0; }, Errc::corrupt, "context_length"},
      {"family", [](auto& s) { s.family = "mamba"; }, Errc::invalid_argument, "mamba"},
      {"value heads", [](auto& s) { s.family = "qwen35"; s.value_heads = 5; }, Errc::corrupt,
       "5 value heads"},
      {"delta dim", [](auto& s) { s.family = "qwen35"; s.delta_dim = 20; }, Errc::invalid_argument,
       "head dimension 20"},
      {"no attention", [](auto& s) { s.family = "qwen35"; s.interval = 3; }, Errc::corrupt,
       "leave no layer with attention"},
  };
  for (const BadSpec& bad : cases) {
    // The tensors are those of a good model: metadata is judged first.
    RandomModelSpec spec;
    bad.change(spec);
    RandomModel model;
    model.spec = spec;
    model.tensors["token_embd.weight"] = {{40, 77}, std::vector<float>(40 * 77, 0.5F)};
    const Error error = load_error(model.bytes());
    INFO(bad.name << ": " << error.message);
    CHECK(error.code == bad.code);
    CHECK(error.message.find(bad.message) != std::string::npos);
  }
}

TEST_CASE("model load: features that would be ignored silently are refused") {
  const RandomModel model = make_random_model({});
  const auto with = [&](const std::function<void(GgufWriter&)>& add) {
    GgufWriter writer = model.metadata();
    add(writer);
    for (const auto& [name, tensor] : model.tensors) {
      writer.tensor(name, GgmlType::kF32, tensor.dims, tensor.values);
    }
    return load_error(writer.bytes());
  };
  CHECK(with([](GgufWriter& w) { w.u32("llama.expert_count", 8); }).message.find("8 experts") !=
        std::string::npos);
  CHECK(with([](GgufWriter& w) { w.boolean("llama.attention.causal", false); })
            .message.find("causal") != std::string::npos);
  CHECK(with([](GgufWriter& w) { w.u32("llama.vocab_size", 78); }).message.find("78") !=
        std::string::npos);
  CHECK(with([](GgufWriter& w) { w.strings("tokenizer.ggml.tokens", {"a", "b"}); })
            .message.find("2 tokens") != std::string::npos);
}

struct BadTensor {
  const char* name;
  std::function<void(RandomModel&)> change;
  Errc code;
  const char* message;
};

TEST_CASE("model load: tensors must be there, of the right shape, and known") {
  const std::vector<BadTensor> cases = {
      {"missing", [](auto& m) { m.tensors.erase("blk.1.ffn_up.weight"); }, Errc::not_found,
       "blk.1.ffn_up.weight [40, 56] is missing"},
      {"missing norm", [](auto& m) { m.tensors.erase("output_norm.weight"); }, Errc::not_found,
       "output_norm.weight [40]"},
      {"transposed",
       [](auto& m) { std::swap(m.tensors["blk.0.ffn_up.weight"].dims[0],
                               m.tensors["blk.0.ffn_up.weight"].dims[1]); },
       Errc::corrupt, "the model needs [40, 56]"},
      {"short norm",
       [](auto& m) { m.tensors["blk.0.attn_norm.weight"] = {{39}, std::vector<float>(39)}; },
       Errc::corrupt, "the model needs [40]"},
      {"third dimension",
       [](auto& m) { m.tensors["blk.0.attn_norm.weight"] = {{40, 1, 2}, std::vector<float>(80)}; },
       Errc::corrupt, "the model needs [40]"},
      {"unknown",
       [](auto& m) { m.tensors["blk.0.attn_sinks.weight"] = {{6}, std::vector<float>(6)}; },
       Errc::invalid_argument, "blk.0.attn_sinks.weight"},
      {"layer past the end",
       [](auto& m) { m.tensors["blk.2.attn_norm.weight"] = {{40}, std::vector<float>(40)}; },
       Errc::invalid_argument, "1 tensors are unknown"},
      {"rope_freqs of zero",
       [](auto& m) { m.tensors["rope_freqs.weight"] = {{4}, std::vector<float>(4, 0.0F)}; },
       Errc::corrupt, "rope_freqs"},
  };
  for (const BadTensor& bad : cases) {
    RandomModel model = make_random_model({});
    bad.change(model);
    const Error error = load_error(model.bytes());
    INFO(bad.name << ": " << error.message);
    CHECK(error.code == bad.code);
    CHECK(error.message.find(bad.message) != std::string::npos);
  }
}

TEST_CASE("model load: types without kernels are refused") {
  const RandomModel model = make_random_model({});
  const auto with_type = [&](const std::string& victim, GgmlType type, size_t bytes) {
    GgufWriter writer = model.metadata();
    for (const auto& [name, tensor] : model.tensors) {
      if (name == victim) {
        writer.tensor(name, type, tensor.dims, std::vector<std::byte>(bytes));
      } else {
        writer.tensor(name, GgmlType::kF32, tensor.dims, tensor.values);
      }
    }
    return load_error(writer.bytes());
  };
  const Error norm = with_type("output_norm.weight", GgmlType::kF16, 80);
  CHECK(norm.code == Errc::invalid_argument);
  CHECK(norm.message.find("must be F32") != std::string::npos);
  const Error matrix = with_type("blk.0.attn_q.weight", GgmlType::kF64, 40 * 48 * 8);
  CHECK(matrix.code == Errc::invalid_argument);
  CHECK(matrix.message.find("no kernels") != std::string::npos);
}

TEST_CASE("model load: sizes are known before anything is allocated") {
  const GgufFile file =
      GgufFile::from_bytes(make_random_model({.layers = 3}).bytes()).value();
  const auto model = Model::load(file).value();
  CHECK(model->kv_bytes_per_token() == 3 * 2 * 2 * 8 * 2);  // layers, k and v, kv heads, dim, f16
  CHECK(model->recurrent_bytes_per_sequence() == 0);
  CHECK(model->state_shape(100).tokens_max == 100);
  CHECK(model->state_shape(0).tokens_max == 256);
  CHECK(model->state_shape(100'000).tokens_max == 256);

  const RandomModel hybrid_model =
      make_random_model({.family = "qwen35", .layers = 4, .draft_blocks = 1});
  const GgufFile hybrid_file = GgufFile::from_bytes(hybrid_model.bytes()).value();
  const auto hybrid = Model::load(hybrid_file).value();
  CHECK(hybrid->kv_bytes_per_token() == 2 * 2 * 2 * 8 * 2);
  // Two DeltaNet layers: convolution of (2 * 2 + 6) * 24 channels and 6 states of 24 x 24, f32.
  CHECK(hybrid->recurrent_bytes_per_sequence() == 2 * (3 * 240 + 6 * 24 * 24) * 4);
  CHECK(hybrid->config().draft_blocks == 1);
  CHECK(hybrid->config().layers == 4);
}

}  // namespace
}  // namespace tandem_tests
