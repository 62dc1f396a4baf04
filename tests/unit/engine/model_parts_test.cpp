// A step that is cut anywhere: between operations, inside products, attention, convolutions and the delta rule. The bits
// of its results must not tell. And ModelRunner, which chooses the cuts: units under their limit, nothing left out.
#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "engine/model/step.h"
#include "engine/run/model_runner.h"
#include "tests/support/catch.h"
#include "tests/support/model_fixture.h"
#include "tests/support/random.h"
#include "tests/unit/engine/random_model.h"

namespace tandem_tests {
namespace {

using tandem::SteadyTime;
using tandem::engine::GgufFile;
using tandem::engine::LogitsFor;
using tandem::engine::ModelRunner;
using tandem::engine::Step;
using tandem::engine::StepItem;

constexpr int64_t kRows = 24;

// One sequence with a chunk of a prompt, two that decode, and what the step did to them.
struct Bench {
  std::unique_ptr<ModelFixture> fixture;
  std::array<std::unique_ptr<tandem::engine::SequenceState>, 3> sequences;
  std::array<std::vector<int32_t>, 3> tokens;
  std::vector<StepItem> items;

  explicit Bench(const RandomModelSpec& spec) {
    fixture = ModelFixture::make(GgufFile::from_bytes(make_random_model(spec).bytes()).value(),
                                 {.threads = 2, .context_tokens = 128, .kv_tokens = 256, .rows_max = kRows,
                                  .logit_rows_max = 4})
                  .value();
    const std::array<int32_t, 3> counts = {kRows - 4, 1, 1};
    for (size_t i = 0; i < sequences.size(); ++i) {
      sequences[i] = fixture->store->create_sequence().value();
      tokens[i].resize(static_cast<size_t>(counts[i]));
      std::iota(tokens[i].begin(), tokens[i].end(), static_cast<int32_t>(3 + 7 * i));
      items.push_back({sequences[i].get(), tokens[i], LogitsFor::last});
    }
    // Something lies before what is computed.
    const std::vector<int32_t> before = {9, 8, 7, 6, 5, 4, 3};
    for (auto& sequence : sequences) {
      const StepItem item = {sequence.get(), before, LogitsFor::none};
      REQUIRE(step().begin({&item, 1}).ok());
      step().run_all();
      step().finish();
    }
  }
  [[nodiscard]] Step& step() const { return *fixture->step; }
  [[nodiscard]] std::vector<float> logits() const {
    std::vector<float> out;
    for (size_t row = 0; row < step().logit_rows(); ++row) {
      out.insert(out.end(), step().logits(row).begin(), step().logits(row).end());
    }
    return out;
  }
  // What comes after depends on the states that the step left.
  [[nodiscard]] std::vector<float> logits_after() {
    std::vector<float> out;
    for (auto& sequence : sequences) {
      const std::vector<int32_t> next = {11};
      const StepItem item = {sequence.get(), next, LogitsFor::last};
      REQUIRE(step().begin({&item, 1}).ok());
      step().run_all();
      step().finish();
      const auto row = logits();
      out.insert(out.end(), row.begin(), row.end());
    }
    return out;
  }
};

std::vector<RandomModelSpec> families() {
  return {{.family = "llama"}, {.family = "qwen3"}, {.family = "qwen35", .layers = 4}};
}

// Every reading of the time is `each` later than the one before.
class TickingClock final : public tandem::Clock {
 public:
  [[nodiscard]] SteadyTime now() const override { return now_ += each; }
  [[nodiscard]] int64_t unix_seconds() const override { return 0; }
  std::chrono::microseconds each{100};

 private:
  mutable SteadyTime now_{};
};

}  // namespace

TEST_CASE("parts: however a step is cut, its results have the same bits") {
  for (const RandomModelSpec& spec : families()) {
    Bench whole(spec);
    REQUIRE(whole.step().begin(whole.items).ok());
    whole.step().run_all();
    whole.step().finish();
    const auto expected = whole.logits();
    const auto expected_after = whole.logits_after();
    for (uint64_t seed = 0; seed < 12; ++seed) {
      INFO(spec.family << " seed " << seed);
      tandem::tests::Random random(seed);
      Bench cut(spec);
      REQUIRE(cut.step().begin(cut.items).ok());
      while (!cut.step().done()) {
        const auto extent = static_cast<size_t>(cut.step().operation_extent(cut.step().cursor()));
        // The first seed cuts wherever that is possible.
        cut.step().run_part(seed == 0 ? 1 : 1 + static_cast<int64_t>(random.below(extent + 2)));
      }
      cut.step().finish();
      CHECK(cut.logits() == expected);
      CHECK(cut.logits_after() == expected_after);
    }
  }
}

TEST_CASE("parts: what can be cut, and how far") {
  Bench bench({.family = "qwen35", .layers = 4});
  Step& step = bench.step();
  REQUIRE(step.begin(bench.items).ok());
  size_t by_rows = 0;
  while (!step.done()) {
    const size_t at = step.cursor();
    const std::string name = step.operation_name(at);
    const int64_t extent = step.operation_extent(at);
    INFO(name);
    for (const char* cut : {"attention", "delta convolution", "delta recurrence"}) {
      const bool ends_so = name.size() >= std::string(cut).size() &&
                           name.compare(name.size() - std::string(cut).size(), std::string::npos, cut) == 0;
      if (!ends_so) continue;
      CHECK(extent == step.rows());
      ++by_rows;
    }
    if (extent > 1) {
      step.run_part(1);
      CHECK(step.cursor() == at);
      CHECK(step.part_done() == 1);
    }
    step.run_part(extent);
    CHECK(step.cursor() == at + 1);
    CHECK(step.part_done() == 0);
  }
  CHECK(by_rows == 2 + 2 * 2);  // two layers attend, two convolve and run the delta rule
  step.finish();
}

TEST_CASE("runner: units stay under their limit and lose nothing") {
  for (const RandomModelSpec& spec : families()) {
    INFO(spec.family);
    Bench whole(spec);
    REQUIRE(whole.step().begin(whole.items).ok());
    whole.step().run_all();
    whole.step().finish();
    const auto expected = whole.logits();

    Bench cut(spec);
    const TickingClock clock;  // every operation takes 100 us
    ModelRunner runner(cut.step(), clock, {.limits = {.vocab = spec.vocab}});
    for (const int64_t longest_ns : {int64_t{1'000'000}, int64_t{350'000}, int64_t{0}}) {
      INFO("longest " << longest_ns);
      REQUIRE(runner.begin(cut.items).ok());
      size_t units = 0;
      bool last = false;
      while (!last) {
        const size_t before = cut.step().cursor();
        const int64_t predicted_ns = runner.plan_unit(longest_ns);
        CHECK(predicted_ns > 0);
        last = runner.run_unit();
        ++units;
        // What cannot be cut runs in any case, and alone.
        if (longest_ns > 0 && predicted_ns > longest_ns) CHECK(cut.step().cursor() <= before + 1);
      }
      CHECK(cut.step().done());
      if (longest_ns == 350'000) CHECK(units > 8);
      if (longest_ns == 0) CHECK(units == 1);
      if (longest_ns == 1'000'000) CHECK(cut.logits() == expected);
      runner.finish();
    }
    CHECK(runner.error_permille() > 0);
  }
}

TEST_CASE("runner: without a plan and without a quantum a step is one unit") {
  Bench bench({});
  const TickingClock clock;
  ModelRunner runner(bench.step(), clock, {.limits = {.vocab = 77}});
  REQUIRE(runner.begin(bench.items).ok());
  CHECK(runner.run_unit());
  runner.finish();
  ModelRunner cutting(bench.step(), clock, {.limits = {.vocab = 77}, .quantum_us = 1});
  REQUIRE(cutting.begin(bench.items).ok());
  size_t units = 1;
  while (!cutting.run_unit()) ++units;
  CHECK(units > 3);
  cutting.finish();
}

}  // namespace tandem_tests
