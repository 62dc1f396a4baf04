// The contract of Step: what begin() refuses, what abandon() and finish() leave, and that nothing
// is allocated from the ledger once a step exists.
#include <array>
#include <string>
#include <vector>

#include "engine/model/step.h"
#include "tests/support/catch.h"
#include "tests/support/model_fixture.h"
#include "tests/unit/engine/random_model.h"

namespace tandem_tests {
namespace {

using tandem::Errc;
using tandem::engine::chunk_end;
using tandem::engine::GgufFile;
using tandem::engine::LogitsFor;
using tandem::engine::Step;
using tandem::engine::StepItem;

std::unique_ptr<ModelFixture> make_fixture(const RandomModelSpec& spec) {
  return ModelFixture::make(GgufFile::from_bytes(make_random_model(spec).bytes()).value(),
                            {.threads = 1, .context_tokens = 128, .kv_tokens = 128, .rows_max = 16,
                             .logit_rows_max = 4})
      .value();
}

TEST_CASE("step: chunk borders are absolute multiples") {
  CHECK(chunk_end(0, 64) == 64);
  CHECK(chunk_end(63, 64) == 64);
  CHECK(chunk_end(64, 64) == 128);
  CHECK(chunk_end(100, 64) == 128);
}

TEST_CASE("step: begin refuses what it cannot run and changes nothing") {
  auto fixture = make_fixture({});
  auto sequence = fixture->store->create_sequence().value();
  auto other = fixture->store->create_sequence().value();
  const std::vector<int32_t> tokens(17, 5);
  const auto some = [&](size_t count) { return std::span<const int32_t>(tokens).first(count); };
  const auto refused = [&](std::vector<StepItem> items, Errc code, const char* message) {
    const auto begun = fixture->step->begin(items);
    REQUIRE(!begun.ok());
    INFO(begun.error().message);
    CHECK(begun.error().code == code);
    CHECK(begun.error().message.find(message) != std::string::npos);
    CHECK(!fixture->step->begun());
    CHECK(sequence->length() == 0);
  };
  refused({}, Errc::invalid_argument, "at least one");
  refused({{sequence.get(), some(0), LogitsFor::last}}, Errc::invalid_argument, "no tokens");
  refused({{sequence.get(), some(17), LogitsFor::last}}, Errc::too_large, "17 rows");
  refused({{sequence.get(), some(5), LogitsFor::all}}, Errc::too_large, "5 rows with logits");
  refused({{sequence.get(), some(1), LogitsFor::last}, {sequence.get(), some(1), LogitsFor::last}},
          Errc::invalid_argument, "one sequence");
  for (const int32_t bad : {-1, 77, 1 << 30}) {
    refused({{other.get(), some(2), LogitsFor::last},
             {sequence.get(), std::span<const int32_t>(&bad, 1), LogitsFor::last}},
            Errc::invalid_argument, "outside the vocabulary of 77");
  }
}

TEST_CASE("step: exhausted pages are told and the neighbours go on") {
  auto fixture = make_fixture({});  // four pages
  auto big = fixture->store->create_sequence().value();
  auto small = fixture->store->create_sequence().value();
  REQUIRE(big->reserve_tokens(100).ok());
  const std::vector<int32_t> tokens(16, 3);
  const StepItem item = {small.get(), tokens, LogitsFor::last};
  const auto begun = fixture->step->begin({&item, 1});
  REQUIRE(!begun.ok());
  CHECK(begun.error().code == Errc::exhausted);
  CHECK(begun.error().message.find("0 of 4 free") != std::string::npos);
  big->reset();
  REQUIRE(fixture->step->begin({&item, 1}).ok());
  fixture->step->run_all();
  fixture->step->finish();
  CHECK(small->length() == 16);
  CHECK(fixture->store->check_integrity().ok());
}

TEST_CASE("step: rows with logits come in item and token order") {
  auto fixture = make_fixture({});
  const std::vector<int32_t> tokens = {1, 2, 3};
  std::array<std::unique_ptr<tandem::engine::SequenceState>, 3> sequences;
  for (auto& sequence : sequences) sequence = fixture->store->create_sequence().value();
  const std::vector<StepItem> items = {{sequences[0].get(), tokens, LogitsFor::none},
                                       {sequences[1].get(), tokens, LogitsFor::all},
                                       {sequences[2].get(), tokens, LogitsFor::last}};
  REQUIRE(fixture->step->begin(items).ok());
  fixture->step->run_all();
  REQUIRE(fixture->step->logit_rows() == 4);
  CHECK(fixture->step->first_logit_row(1) == 0);
  CHECK(fixture->step->first_logit_row(2) == 3);
  // The same tokens give the same bits, whichever the item.
  const auto last_of_all = fixture->step->logits(2);
  const auto last = fixture->step->logits(3);
  CHECK(std::equal(last.begin(), last.end(), last_of_all.begin()));
  CHECK(!std::equal(last.begin(), last.end(), fixture->step->logits(1).begin()));
  fixture->step->finish();
}

TEST_CASE("step: workspace is reserved once, and its size is known before") {
  auto fixture = make_fixture({.family = "qwen35", .layers = 4});
  using tandem::budget::Tag;
  const int64_t held = fixture->ledger.held(Tag::workspace);
  CHECK(held == Step::workspace_bytes(*fixture->model, {.rows_max = 16, .logit_rows_max = 4}));
  auto sequence = fixture->store->create_sequence().value();
  const int64_t total = fixture->ledger.held_total();
  const std::vector<int32_t> tokens(16, 9);
  for (int i = 0; i < 8; ++i) {
    const StepItem item = {sequence.get(), tokens, LogitsFor::last};
    REQUIRE(fixture->step->begin({&item, 1}).ok());
    fixture->step->run_all();
    fixture->step->finish();
    CHECK(fixture->ledger.held_total() == total);
  }
  CHECK(sequence->length() == 128);
  const auto one_token = std::span<const int32_t>(tokens).first(1);
  const StepItem past = {sequence.get(), one_token, LogitsFor::last};
  const auto refused = fixture->step->begin({&past, 1});
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == Errc::too_large);
}

// 60 tokens in steps of odd sizes; between them KV and workspace change when `resized`. All logits.
std::vector<float> logits_of(const RandomModelSpec& spec, bool resized) {
  auto fixture = make_fixture(spec);
  auto other = fixture->store->create_sequence().value();
  auto sequence = fixture->store->create_sequence().value();
  REQUIRE(other->reserve_tokens(32).ok());  // so that the other one's pages are not the first
  const auto tokens = random_tokens(spec, 60);
  std::vector<float> all;
  size_t done = 0;
  for (int turn = 0; done < tokens.size(); ++turn) {
    if (resized && turn == 2) other->reset();
    if (resized && turn >= 2) {
      const int64_t used = fixture->store->pool().counts().owned;
      const int64_t pages[] = {used, 9, used + 1, 40, used};
      REQUIRE(fixture->store->resize(pages[turn % 5]).ok());
      if (used == pages[turn % 5]) REQUIRE(fixture->store->resize(used + 1).ok());
      REQUIRE(fixture->step->resize({.rows_max = 8 + turn, .logit_rows_max = 1 + turn % 3, .items_max = 2}).ok());
    }
    const size_t count = std::min<size_t>(static_cast<size_t>(3 + turn % 5), tokens.size() - done);
    const StepItem item = {sequence.get(), std::span(tokens).subspan(done, count), LogitsFor::last};
    REQUIRE(fixture->step->begin({&item, 1}).ok());
    fixture->step->run_all();
    const auto row = fixture->step->logits(0);
    all.insert(all.end(), row.begin(), row.end());
    fixture->step->finish();
    done += count;
  }
  return all;
}

TEST_CASE("step: KV and workspace that change between steps change no bit") {
  for (const char* family : {"llama", "qwen35"}) {
    const RandomModelSpec spec = {.family = family, .layers = 4};
    CHECK(logits_of(spec, false) == logits_of(spec, true));
  }
}

TEST_CASE("step: a refused resize leaves workspace and limits as they were") {
  auto fixture = make_fixture({});
  const int64_t held = fixture->ledger.held_total();
  fixture->ledger.fail_next(tandem::budget::Tag::workspace);
  REQUIRE_FALSE(fixture->step->resize({.rows_max = 99, .logit_rows_max = 9, .items_max = 3}).ok());
  CHECK(fixture->ledger.held_total() == held);
  CHECK(fixture->step->limits().rows_max == 16);
  REQUIRE(fixture->step->resize({.rows_max = 4, .logit_rows_max = 1, .items_max = 1}).ok());
  CHECK(fixture->ledger.held_total() < held);
  CHECK(fixture->ledger.held(tandem::budget::Tag::workspace) ==
        Step::workspace_bytes(*fixture->model, fixture->step->limits()));
}

TEST_CASE("step: an abandoned step leaves a plain sequence as it was") {
  auto fixture = make_fixture({});
  auto sequence = fixture->store->create_sequence().value();
  const std::vector<int32_t> tokens = {4, 5, 6, 7};
  const StepItem item = {sequence.get(), tokens, LogitsFor::last};
  REQUIRE(fixture->step->begin({&item, 1}).ok());
  fixture->step->run_all();
  const auto logits = fixture->step->logits(0);
  const std::vector<float> expected(logits.begin(), logits.end());
  fixture->step->abandon();
  CHECK(sequence->length() == 0);
  CHECK(sequence->valid());
  REQUIRE(fixture->step->begin({&item, 1}).ok());
  fixture->step->run_all();
  CHECK(std::equal(expected.begin(), expected.end(), fixture->step->logits(0).begin()));
  fixture->step->finish();
}

TEST_CASE("step: a refused workspace leaves the ledger as it was") {
  auto fixture = make_fixture({});
  fixture->ledger.fail_next(tandem::budget::Tag::workspace);
  const int64_t held = fixture->ledger.held_total();
  const auto made = Step::create(*fixture->model, *fixture->store, *fixture->compute,
                                 fixture->ledger, {.rows_max = 8});
  REQUIRE(!made.ok());
  CHECK(made.error().code == Errc::exhausted);
  CHECK(fixture->ledger.held_total() == held);
}

}  // namespace
}  // namespace tandem_tests
