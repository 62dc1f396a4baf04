#include "engine/run/batch.h"

#include "tests/support/catch.h"

namespace tandem::engine {
namespace {

const BatchLimits kLimits{.rows_max = 160,
                          .prefill_rows_max = 128,
                          .logit_rows_max = 36,
                          .items_max = 4,
                          .chunk_tokens = 64,
                          .scored_chunk_tokens = 32};

TEST_CASE("batch: decodes come first and each takes one row") {
  const std::vector<BatchCandidate> c = {{.computed = 0, .tokens = 1000},
                                         {.computed = 9, .tokens = 10},
                                         {.computed = 77, .tokens = 78}};
  const auto pieces = choose_batch(c, kLimits, 0);
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[0].count == 128);
  CHECK(pieces[0].logits == LogitsFor::none);
  CHECK(pieces[1].count == 1);
  CHECK(pieces[1].logits == LogitsFor::last);
  CHECK(pieces[2].count == 1);
}

TEST_CASE("batch: blocks end at absolute multiples or at the end of the prompt") {
  for (int64_t computed = 0; computed < 200; computed += 7) {
    const std::vector<BatchCandidate> c = {{.computed = computed, .tokens = 301}};
    const auto pieces = choose_batch(c, kLimits, 0);
    REQUIRE(pieces.size() == 1);
    const int64_t end = computed + pieces[0].count;
    CHECK((end % 64 == 0 || end == 301));
    CHECK(pieces[0].count <= 128);
    CHECK(pieces[0].count > 64);  // two blocks fit beside nothing else
  }
}

TEST_CASE("batch: prefills share the rows block by block, and the round turns") {
  const std::vector<BatchCandidate> c = {{.computed = 0, .tokens = 1000},
                                         {.computed = 0, .tokens = 1000},
                                         {.computed = 0, .tokens = 1000}};
  const auto first = choose_batch(c, kLimits, 0);
  REQUIRE(first.size() == 2);
  CHECK(first[0].candidate == 0);
  CHECK(first[1].candidate == 1);
  const auto second = choose_batch(c, kLimits, 2);
  REQUIRE(second.size() == 2);
  CHECK(second[0].candidate == 0);
  CHECK(second[1].candidate == 2);
}

TEST_CASE("batch: without credit neither a decode nor the last block of a prompt runs") {
  const std::vector<BatchCandidate> c = {
      {.computed = 9, .tokens = 10, .may_sample = false},
      {.computed = 0, .tokens = 100, .may_sample = false},
  };
  const auto pieces = choose_batch(c, kLimits, 0);
  REQUIRE(pieces.size() == 1);
  CHECK(pieces[0].candidate == 1);
  CHECK(pieces[0].count == 64);
  const std::vector<BatchCandidate> rest = {{.computed = 64, .tokens = 100, .may_sample = false}};
  CHECK(choose_batch(rest, kLimits, 0).empty());
}

TEST_CASE("batch: a scored prompt takes small blocks with a logit row each") {
  const std::vector<BatchCandidate> c = {
      {.computed = 0, .tokens = 100, .scored_until = 100},
      {.computed = 3, .tokens = 4},
      {.computed = 0, .tokens = 90, .scored_until = 90},
  };
  const auto pieces = choose_batch(c, kLimits, 0);
  REQUIRE(pieces.size() == 2);  // the second scored prompt waits: 36 - 1 - 32 rows are left
  CHECK(pieces[0].count == 32);
  CHECK(pieces[0].logits == LogitsFor::all);
  CHECK(pieces[1].candidate == 1);
  const auto turned = choose_batch(c, kLimits, 2);
  CHECK(turned.back().candidate == 2);
}

TEST_CASE("batch: items are capped, and a block runs even when the pace allows less") {
  BatchLimits slow = kLimits;
  slow.prefill_rows_max = 1;
  const std::vector<BatchCandidate> one = {{.computed = 0, .tokens = 1000}};
  const auto pieces = choose_batch(one, slow, 0);
  REQUIRE(pieces.size() == 1);
  CHECK(pieces[0].count == 64);
  const std::vector<BatchCandidate> many(6, BatchCandidate{.computed = 3, .tokens = 4});
  CHECK(choose_batch(many, kLimits, 0).size() == 4);
}

}  // namespace
}  // namespace tandem::engine
