// What a request is promised at its admission, and what is learned of a model's answers.
#include "policies/admission.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "tests/support/catch.h"

namespace tandem::policies {
namespace {

TEST_CASE("admission: prompt + min(limit, p90, 2,048)") {
  const auto reserve = [](int64_t prompt, int64_t limit, std::optional<int64_t> p90,
                          int64_t generated = 0) {
    return tokens_to_reserve({.prompt_tokens = prompt,
                              .generated_tokens = generated,
                              .answer_tokens_max = limit,
                              .answer_p90_tokens = p90});
  };
  CHECK(reserve(1000, 100, std::nullopt) == 1100);     // the limit
  CHECK(reserve(1000, 100'000, std::nullopt) == 3048);  // nothing learned: 2,048
  CHECK(reserve(1000, 100'000, 320) == 1320);           // learned
  CHECK(reserve(1000, 100, 320) == 1100);
  CHECK(reserve(1000, 100'000, 9000) == 3048);  // whatever was learned
  CHECK(reserve(1000, 0, 320) == 1000);         // a prompt that is only scored
  CHECK(reserve(1000, 100'000, 0) == 1032);     // models that say nothing: the next page
}

TEST_CASE("admission: an answer longer than expected grows by a page, up to its limit") {
  const auto reserve = [](int64_t generated, int64_t limit) {
    return tokens_to_reserve({.prompt_tokens = 500,
                              .generated_tokens = generated,
                              .answer_tokens_max = limit,
                              .answer_p90_tokens = 320});
  };
  CHECK(reserve(1, 10'000) == 820);
  CHECK(reserve(288, 10'000) == 820);
  CHECK(reserve(289, 10'000) == 500 + 289 + 32);
  CHECK(reserve(5000, 10'000) == 500 + 5032);
  CHECK(reserve(9990, 10'000) == 500 + 10'000);
  CHECK(reserve(10'000, 10'000) == 500 + 10'000);
}

TEST_CASE("admission: nothing is learned of few answers") {
  AnswerLengths lengths;
  for (int i = 0; i < AnswerLengths::kAnswersMin - 1; ++i) lengths.add(40);
  CHECK_FALSE(lengths.p90().has_value());
  lengths.add(40);
  CHECK(lengths.p90() == 64);
  // One in ten may be longer.
  AnswerLengths mixed;
  for (int i = 0; i < 90; ++i) mixed.add(100);
  for (int i = 0; i < 10; ++i) mixed.add(1900);
  CHECK(mixed.p90() == 128);
  mixed.add(1900);
  CHECK(mixed.p90() == 1920);
}

TEST_CASE("admission: answers of any length are counted, and old ones fade") {
  AnswerLengths lengths;
  for (int i = 0; i < 500; ++i) lengths.add(INT64_MAX / 2);
  CHECK(lengths.p90() == kAnswerReserveTokensMax);
  for (int i = 0; i < 100; ++i) lengths.add(0);
  CHECK(lengths.p90() == kAnswerReserveTokensMax);
  for (int i = 0; i < 2 * AnswerLengths::kWindow; ++i) lengths.add(0);
  CHECK(lengths.p90() == 0);
}

TEST_CASE("admission: p90 is that of the recent answers, rounded up to a page", "[property]") {
  std::mt19937_64 random(20261130);
  for (int round = 0; round < 50; ++round) {
    AnswerLengths lengths;
    std::vector<int64_t> all;
    const auto count = 32 + random() % 900;  // before anything fades
    const auto longest = 1 + random() % 3000;
    for (size_t i = 0; i < count; ++i) {
      all.push_back(static_cast<int64_t>(random() % longest));
      lengths.add(all.back());
    }
    std::sort(all.begin(), all.end());
    const int64_t exact = all[(all.size() * 9 + 9) / 10 - 1];
    const int64_t rounded = (exact + kReserveGrowTokens - 1) / kReserveGrowTokens * kReserveGrowTokens;
    INFO("round " << round << ", " << count << " answers, exact " << exact);
    REQUIRE(lengths.p90() == std::min(rounded, kAnswerReserveTokensMax));
  }
}

// A promise never shrinks below what is there and never passes the request's own end; a page more is
// always in it until that end.
TEST_CASE("admission: promises stay between what is there and what may come", "[property]") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    ReserveQuestion q{.prompt_tokens = static_cast<int64_t>(1 + random() % 100'000),
                      .generated_tokens = 0,
                      .answer_tokens_max = static_cast<int64_t>(random() % 50'000),
                      .answer_p90_tokens = std::nullopt};
    if (random() % 2 == 0) q.answer_p90_tokens = static_cast<int64_t>(random() % 2049);
    if (q.answer_tokens_max > 0) {
      q.generated_tokens = static_cast<int64_t>(random()) % q.answer_tokens_max;
      q.generated_tokens = std::max<int64_t>(q.generated_tokens, 0);
    }
    const int64_t promised = tokens_to_reserve(q);
    const int64_t there = q.prompt_tokens + q.generated_tokens;
    REQUIRE(promised >= there);
    REQUIRE(promised <= q.prompt_tokens + q.answer_tokens_max);
    REQUIRE(promised >= std::min(there + kReserveGrowTokens, q.prompt_tokens + q.answer_tokens_max));
    REQUIRE(promised <= std::max(there + kReserveGrowTokens, q.prompt_tokens + kAnswerReserveTokensMax));
  }
}

}  // namespace
}  // namespace tandem::policies
