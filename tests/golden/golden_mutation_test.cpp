// The golden comparisons can fail: each mutation below is a bug that a model may plausibly have,
// made on the loaded list of operations (or on a copy of one weight), and must break the bounds.
// Nothing of it exists in the product: parts are built, changed here, and assembled.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "engine/model/config.h"
#include "engine/model/parts.h"
#include "kernels/dtype.h"
#include "tests/golden/golden_report.h"
#include "tests/support/catch.h"

namespace tandem_tests {
namespace {

using tandem::engine::AnglesOp;
using tandem::engine::AttentionOp;
using tandem::engine::Buffer;
using tandem::engine::DeltaOp;
using tandem::engine::GgufFile;
using tandem::engine::HeadNormOp;
using tandem::engine::Model;
using tandem::engine::ModelConfig;
using tandem::engine::ModelParts;
using tandem::engine::NormOp;
using tandem::engine::Projection;
using tandem::engine::ProjectOp;

using Storage = std::vector<std::byte>;  // a changed copy of a weight
using Mutation = std::function<void(ModelParts&, const ModelConfig&, Storage&)>;

// The first operation of type Op for which `wanted` holds.
template <typename Op, typename Wanted>
Op& first_op(ModelParts& parts, Wanted wanted) {
  for (auto& operation : parts.operations) {
    if (auto* op = std::get_if<Op>(&operation.body); op != nullptr && wanted(*op)) return *op;
  }
  FAIL("the model has no such operation");
  std::abort();
}
template <typename Op>
Op& first_op(ModelParts& parts) {
  return first_op<Op>(parts, [](const Op&) { return true; });
}

Projection& first_projection_to(ModelParts& parts, Buffer out) {
  auto& op = first_op<ProjectOp>(parts, [&](const ProjectOp& candidate) {
    return candidate.outputs.front().out == out;
  });
  return op.outputs.front();
}

// Replaces a weight by a copy in which rows [a, a + count) and [b, b + count) have changed places.
void swap_rows(tandem::kernels::WeightView& weight, int64_t a, int64_t b, int64_t count,
               Storage& storage) {
  const int64_t row = tandem::kernels::row_bytes(weight.type, weight.width);
  const auto* source = static_cast<const std::byte*>(weight.data);
  storage.assign(source, source + weight.rows * row);
  std::swap_ranges(storage.begin() + a * row, storage.begin() + (a + count) * row,
                   storage.begin() + b * row);
  weight.data = storage.data();
}

void none(ModelParts&, const ModelConfig&, Storage&) {}

// The product reads the stream itself; the norm before it is computed for nothing.
void drop_norm(ModelParts& parts, const ModelConfig&, Storage&) {
  bool first = true;
  for (auto& operation : parts.operations) {
    auto* op = std::get_if<ProjectOp>(&operation.body);
    if (op == nullptr || op->in != Buffer::normed || !first) continue;
    op->in = Buffer::residual;
    first = false;
  }
}

void drop_head_norm(ModelParts& parts, const ModelConfig&, Storage&) {
  auto& list = parts.operations;
  const auto at = std::find_if(list.begin(), list.end(), [](const auto& operation) {
    return std::holds_alternative<HeadNormOp>(operation.body);
  });
  REQUIRE(at != list.end());
  list.erase(at);
}

// Pair i turns at the speed of pair i + 1.
void shift_rope(ModelParts& parts, const ModelConfig& config, Storage&) {
  auto& angles = first_op<AnglesOp>(parts);
  const double step = std::pow(config.rope.base, 2.0 / static_cast<double>(config.rope.dims));
  angles.factors.assign(static_cast<size_t>(config.rope.dims / 2), static_cast<float>(step));
}

// The first and the last head, which read different key heads.
void swap_query_heads(ModelParts& parts, const ModelConfig& config, Storage& storage) {
  Projection& query = first_projection_to(parts, Buffer::query);
  const int64_t rows = query.weight.rows / config.heads;
  swap_rows(query.weight, 0, query.weight.rows - rows, rows, storage);
}

// The first two, which share a key head.
void swap_query_neighbours(ModelParts& parts, const ModelConfig& config, Storage& storage) {
  Projection& query = first_projection_to(parts, Buffer::query);
  const int64_t rows = query.weight.rows / config.heads;
  swap_rows(query.weight, 0, rows, rows, storage);
}

void swap_kv_heads(ModelParts& parts, const ModelConfig& config, Storage& storage) {
  auto& op = first_op<ProjectOp>(parts, [](const ProjectOp& candidate) {
    return candidate.outputs.front().out == Buffer::query;
  });
  swap_rows(op.outputs[1].weight, 0, config.head_dim, config.head_dim, storage);
}

// Decay and write strength of the delta rule change places, in one layer.
void swap_delta_gates(ModelParts& parts, const ModelConfig&, Storage&) {
  auto& op = first_op<DeltaOp>(parts);
  std::swap(op.alpha, op.beta);
}

// The output gate before the query instead of behind it, for the first head of one layer.
void swap_attention_gate(ModelParts& parts, const ModelConfig& config, Storage& storage) {
  Projection& query = first_projection_to(parts, Buffer::query);
  swap_rows(query.weight, 0, config.head_dim, config.head_dim, storage);
}

// A layer's attention is not computed: its output product reads what an earlier layer left.
void drop_attention(ModelParts& parts, const ModelConfig&, Storage&) {
  auto& list = parts.operations;
  const auto at = std::find_if(list.begin(), list.end(), [](const auto& operation) {
    return std::holds_alternative<AttentionOp>(operation.body);
  });
  REQUIRE(at != list.end());
  list.erase(at);
}

constexpr size_t kAllCases = 100;

struct Case {
  const char* name;
  Mutation mutate;
};

// Opens `path`, mutates, and hands the fixture to `score`, which returns the broken bounds.
Failures failures_with(const std::string& path, const Mutation& mutate,
                       const std::function<Failures(ModelFixture&)>& score) {
  GgufFile file = GgufFile::open(path).value();
  const auto vocab = static_cast<int64_t>(file.tensor("token_embd.weight").value()->dims[1]);
  const ModelConfig config =
      tandem::engine::read_model_config(file.metadata(), vocab).value();
  ModelParts parts = tandem::engine::build_parts(file, config).value();
  Storage storage;
  mutate(parts, config, storage);
  auto model = Model::assemble(config, std::move(parts), 0);
  auto fixture =
      ModelFixture::make(std::move(file), std::move(model), {.logit_rows_max = 64}).value();
  return score(*fixture);
}

void check_cases(const std::string& path, const std::vector<Case>& cases,
                 const std::function<Failures(ModelFixture&)>& score) {
  const Failures unchanged = failures_with(path, none, score);
  for (const std::string& failure : unchanged) FAIL_CHECK("unchanged: " + failure);
  for (const Case& mutation : cases) {
    const Failures failures = failures_with(path, mutation.mutate, score);
    INFO(mutation.name);
    CHECK(!failures.empty());
    std::printf("%s: %s\n", mutation.name, failures.empty() ? "NOT NOTICED" : failures[0].c_str());
  }
}

std::vector<Case> hybrid_cases() {
  return {{"drop a norm", drop_norm},
          {"drop a query norm", drop_head_norm},
          {"shift the rotation by one", shift_rope},
          {"swap two query heads", swap_query_heads},
          {"swap two key heads", swap_kv_heads},
          {"swap the gates of the delta rule", swap_delta_gates},
          {"swap query and gate of a head", swap_attention_gate},
          {"drop an attention", drop_attention}};
}

TEST_CASE("golden mutation: tiny hybrid q8_0") {
  const auto golden = read_golden("tiny-hybrid-logits.json").value();
  check_cases(source_path("tests/models/tiny-hybrid-q8_0.gguf"), hybrid_cases(),
              [&](ModelFixture& fixture) {
                return check_hybrid(score_hybrid(fixture, golden, kAllCases).value(),
                                    kHybridQ8Bounds);
              });
}

TEST_CASE("golden mutation: tiny hybrid f16") {
  const std::string path = shared_model("tiny-hybrid-f16.gguf");
  if (skip_without(path, "tiny-hybrid-f16.gguf")) return;
  const auto golden = read_golden("tiny-hybrid-logits.json").value();
  std::vector<Case> cases = hybrid_cases();
  // Too small for the bounds of q8_0.
  cases.push_back({"swap two query heads of one key head", swap_query_neighbours});
  check_cases(path, cases, [&](ModelFixture& fixture) {
    return check_hybrid(score_hybrid(fixture, golden, kAllCases).value(), kHybridF16Bounds);
  });
}

TEST_CASE("golden mutation: smollm2-135m") {
  const std::string path = cached_model("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (skip_without(path, "SmolLM2-135M-Instruct.Q4_1.gguf")) return;
  const auto golden = read_golden("smollm2-135m.json").value();
  check_cases(path,
              {{"drop a norm", drop_norm},
               {"shift the rotation by one", shift_rope},
               {"swap two query heads", swap_query_heads},
               {"swap two key heads", swap_kv_heads}},
              [&](ModelFixture& fixture) {
                return check_real(score_real(fixture, golden, 512, 12).value());
              });
}

}  // namespace
}  // namespace tandem_tests
