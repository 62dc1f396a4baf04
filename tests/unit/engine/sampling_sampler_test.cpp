// Filters, penalties, draws and log-probabilities of the sampler against slow references in double.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "engine/sampling/row_math.h"
#include "engine/sampling/sampler.h"
#include "tests/support/catch.h"

namespace tandem::engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Logits with repeats, so that ties occur.
std::vector<float> random_row(size_t vocab, uint64_t seed) {
  std::vector<float> row(vocab);
  for (size_t i = 0; i < vocab; ++i) {
    const double u = uniform_draw(seed, i);
    row[i] = static_cast<float>(std::round(u * 64) / 4 - 9);
  }
  return row;
}

Sampler make(SamplingParams params, size_t vocab) {
  Result<Sampler> sampler = Sampler::create(std::move(params), vocab);
  REQUIRE(sampler.ok());
  return std::move(sampler).value();
}

int32_t draw(const SamplingParams& params, const std::vector<float>& row, TokenMask mask = {}) {
  SamplerScratch scratch;
  const Result<SampledToken> token = make(params, row.size()).sample(row, mask, scratch);
  REQUIRE(token.ok());
  return token->token;
}

// Probabilities after temperature, min_p, top_k and top_p, by a full sort in double.
std::vector<double> reference(const SamplingParams& p, const std::vector<float>& row) {
  std::vector<size_t> order(row.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return row[a] > row[b] || (row[a] == row[b] && a < b);
  });
  std::vector<double> weight(row.size());
  const double peak = static_cast<double>(row[order[0]]);
  for (size_t i = 0; i < row.size(); ++i) {
    weight[i] = std::exp((static_cast<double>(row[i]) - peak) / p.temperature);
  }
  size_t kept = 0;
  double total = 0;
  const size_t top_k = p.top_k > 0 ? static_cast<size_t>(p.top_k) : row.size();
  while (kept < std::min(top_k, row.size()) && weight[order[kept]] >= p.min_p) {
    total += weight[order[kept++]];
  }
  double sum = 0;
  for (size_t i = 0; i < kept && p.top_p < 1; ++i) {
    sum += weight[order[i]];
    if (sum >= p.top_p * total) kept = i + 1;
  }
  total = 0;
  for (size_t i = 0; i < kept; ++i) total += weight[order[i]];
  std::vector<double> out(row.size(), 0.0);
  for (size_t i = 0; i < kept; ++i) out[order[i]] = weight[order[i]] / total;
  return out;
}

// 20,000 draws with consecutive indices; chi-square of the counts against the reference.
void check_distribution(SamplingParams params, const std::vector<float>& row) {
  const std::vector<double> expected = reference(params, row);
  Sampler sampler = make(params, row.size());
  SamplerScratch scratch;
  constexpr int kDraws = 20'000;
  std::vector<int> counts(row.size(), 0);
  for (int i = 0; i < kDraws; ++i) {
    const Result<SampledToken> token = sampler.sample(row, {}, scratch);
    REQUIRE(token.ok());
    ++counts[static_cast<size_t>(token->token)];
    sampler.accept(token->token);
  }
  double chi2 = 0;
  double bins = 0;
  double rest_expected = 0;
  double rest_count = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    if (expected[i] == 0) CHECK(counts[i] == 0);
    const double e = expected[i] * kDraws;
    if (e < 8) {
      rest_expected += e;
      rest_count += counts[i];
      continue;
    }
    chi2 += (counts[i] - e) * (counts[i] - e) / e;
    bins += 1;
  }
  if (rest_expected > 8) {
    chi2 += (rest_count - rest_expected) * (rest_count - rest_expected) / rest_expected;
    bins += 1;
  }
  // Mean bins - 1, deviation sqrt(2 (bins - 1)): four deviations and a little.
  CHECK(chi2 < bins + 4 * std::sqrt(2 * bins) + 6);
}

TEST_CASE("draws follow the softmax after each combination of filters") {
  const std::vector<float> row = random_row(300, 7);
  check_distribution({.seed = 1}, row);
  check_distribution({.temperature = 0.5, .seed = 2}, row);
  check_distribution({.temperature = 2.5, .seed = 3}, row);
  check_distribution({.top_k = 7, .seed = 4}, row);
  check_distribution({.temperature = 3.0, .top_p = 0.6, .seed = 5}, row);
  check_distribution({.temperature = 2.0, .min_p = 0.1, .seed = 6}, row);
  check_distribution({.temperature = 2.0, .top_k = 40, .top_p = 0.9, .min_p = 0.01, .seed = 7}, row);
  check_distribution({.temperature = 9.0, .top_p = 0.97, .seed = 8}, random_row(5000, 8));
}

// Which tokens can be drawn at all: many draws must reach exactly the reference's set.
TEST_CASE("filters keep exactly the tokens of the reference") {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const std::vector<float> row = random_row(64 + 37 * seed, 100 + seed);
    SamplingParams p{.temperature = 30.0, .seed = seed};
    p.top_k = seed % 3 == 0 ? static_cast<int32_t>(5 + seed) : 0;
    p.top_p = seed % 2 == 0 ? 0.05 + 0.04 * static_cast<double>(seed) : 1.0;
    p.min_p = seed % 4 == 1 ? 0.8 : 0.0;
    const std::vector<double> expected = reference(p, row);
    std::set<int32_t> allowed;
    for (size_t i = 0; i < row.size(); ++i) {
      if (expected[i] > 0) allowed.insert(static_cast<int32_t>(i));
    }
    Sampler sampler = make(p, row.size());
    SamplerScratch scratch;
    std::set<int32_t> seen;
    for (size_t i = 0; i < 60 * row.size(); ++i) {
      const int32_t token = sampler.sample(row, {}, scratch)->token;
      seen.insert(token);
      sampler.accept(token);
    }
    INFO("seed " << seed);
    CHECK(seen == allowed);
  }
}

TEST_CASE("greedy takes the highest logit, the lowest id of equals") {
  CHECK(draw({.temperature = 0}, {1, 3, 2, 3}) == 1);
  CHECK(draw({.temperature = 0}, {-kInf, -5, -kInf}) == 1);
  CHECK(draw({.temperature = 0, .logit_bias = {{3, 0.5F}}}, {1, 3, 2, 3}) == 3);
  const uint64_t mask = 0b1101;
  CHECK(draw({.temperature = 0}, {1, 9, 2, 3}, {&mask, 1}) == 3);
  CHECK(draw({.temperature = 1e-9}, {1, 3, 2, 2.9F}) == 1);
  // Tokens past the end of a short mask are not allowed.
  std::vector<float> row(130, 0.0F);
  row[129] = 5;
  CHECK(draw({.temperature = 0}, row, {&mask, 1}) == 0);
}

TEST_CASE("masked tokens are never drawn, also without temperature filters") {
  const std::vector<float> row(200, 0.0F);
  std::vector<uint64_t> mask(4, 0);
  for (const size_t t : {3u, 64u, 127u, 199u}) mask[t / 64] |= uint64_t{1} << (t % 64);
  for (const int32_t top_k : {0, 2, 50}) {
    Sampler sampler = make({.top_k = top_k, .seed = 5}, row.size());
    SamplerScratch scratch;
    std::set<int32_t> seen;
    for (int i = 0; i < 300; ++i) {
      const int32_t token = sampler.sample(row, mask, scratch)->token;
      seen.insert(token);
      sampler.accept(token);
    }
    CHECK(seen == (top_k == 2 ? std::set<int32_t>{3, 64} : std::set<int32_t>{3, 64, 127, 199}));
  }
}

TEST_CASE("penalties change logits as documented") {
  SamplerScratch scratch;
  const auto pick = [&](SamplingParams p, std::vector<int32_t> prompt, std::vector<int32_t> output,
                        const std::vector<float>& row) {
    p.temperature = 0;
    Sampler sampler = make(p, row.size());
    sampler.add_prompt(prompt);
    for (const int32_t t : output) sampler.accept(t);
    return sampler.sample(row, {}, scratch)->token;
  };
  // Repetition: positive divided, negative multiplied, once for prompt and output together.
  CHECK(pick({.repetition_penalty = 2}, {0}, {0}, {4.0F, 1.9F}) == 0);
  CHECK(pick({.repetition_penalty = 2}, {0}, {}, {4.0F, 2.1F}) == 1);
  CHECK(pick({.repetition_penalty = 2}, {}, {0}, {-1.0F, -1.9F}) == 1);
  CHECK(pick({.repetition_penalty = 2}, {}, {0}, {-1.0F, -2.1F}) == 0);
  // The window forgets.
  CHECK(pick({.repetition_penalty = 2, .repetition_last_n = 2}, {0, 1}, {2}, {4, 3, 3}) == 0);
  CHECK(pick({.repetition_penalty = 2, .repetition_last_n = 3}, {0, 1}, {2}, {4, 3, 3}) == 0);
  CHECK(pick({.repetition_penalty = 2, .repetition_last_n = 3}, {0, 1}, {2}, {4, 3, 3, 2.5F}) == 3);
  CHECK(pick({.repetition_penalty = 2, .repetition_last_n = 1}, {0, 0}, {1, 0}, {4, 3}) == 1);
  CHECK(pick({.repetition_penalty = 2, .repetition_last_n = 0}, {0}, {0}, {4, 3}) == 0);
  // Presence once, frequency by count; the prompt does not count for either.
  CHECK(pick({.presence_penalty = 1}, {0, 0}, {}, {4, 3.5F}) == 0);
  CHECK(pick({.presence_penalty = 1}, {}, {0, 0, 0}, {4, 2.9F}) == 0);
  CHECK(pick({.presence_penalty = 1}, {}, {0}, {4, 3.1F}) == 1);
  CHECK(pick({.frequency_penalty = 0.5}, {0}, {0, 0}, {4, 2.9F}) == 0);
  CHECK(pick({.frequency_penalty = 0.5}, {0}, {0, 0}, {4, 3.1F}) == 1);
  CHECK(pick({.presence_penalty = -2}, {}, {1}, {4, 2.5F}) == 1);
}

TEST_CASE("log-probabilities are the model's own, whatever the filters do") {
  const std::vector<float> row = random_row(4001, 77);
  double peak = -1e30;
  for (const float x : row) peak = std::max(peak, static_cast<double>(x));
  double sum = 0;
  for (const float x : row) sum += std::exp(static_cast<double>(x) - peak);
  const auto exact = [&](size_t t) { return static_cast<double>(row[t]) - peak - std::log(sum); };

  Sampler sampler = make({.temperature = 0.3, .top_k = 3, .repetition_penalty = 3, .presence_penalty = 2,
                          .logit_bias = {{17, 50.0F}}, .seed = 3, .top_logprobs = 20}, row.size());
  SamplerScratch scratch;
  const Result<SampledToken> token = sampler.sample(row, {}, scratch);
  REQUIRE(token.ok());
  CHECK(token->token == 17);  // the bias decides the choice but not the log-probability
  REQUIRE(token->logprobs.has_value());
  CHECK(std::abs(token->logprobs->logprob - exact(17)) < 1e-6);
  REQUIRE(token->logprobs->top.size() == 20);
  std::vector<size_t> order(row.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return row[a] > row[b] || (row[a] == row[b] && a < b);
  });
  for (size_t i = 0; i < 20; ++i) {
    CHECK(token->logprobs->top[i].token == static_cast<int32_t>(order[i]));
    CHECK(std::abs(token->logprobs->top[i].logprob - exact(order[i])) < 1e-6);
  }
  CHECK_FALSE(make({}, row.size()).sample(row, {}, scratch)->logprobs.has_value());
  CHECK(compute_logprobs({{0.0F, -kInf}}, 1, 2, scratch)->logprob == -std::numeric_limits<double>::infinity());
}

TEST_CASE("the exponential of the row pass is exact to a few units in the last place") {
  std::vector<float> in;
  for (int i = 0; i <= 86'990; ++i) in.push_back(-0.001F * static_cast<float>(i));
  std::vector<float> out(in.size());
  exp_pass(in, 0, 1, out);
  double worst = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    const double exact = std::exp(static_cast<double>(in[i]));
    worst = std::max(worst, std::abs(static_cast<double>(out[i]) / exact - 1));
  }
  CHECK(worst < 3e-7);
  exp_pass({{-kInf, -88.0F}}, 0, 1, {out.data(), 2});
  CHECK(out[0] == 0);
  CHECK(out[1] == 0);
}

TEST_CASE("partial selection equals a full sort, ties included") {
  for (const size_t count : {0u, 1u, 2u, 20u, 100u, 1024u, 1025u, 2999u, 3000u, 5000u}) {
    const std::vector<float> row = random_row(3000, count);
    std::vector<int32_t> expected(row.size());
    std::iota(expected.begin(), expected.end(), 0);
    std::sort(expected.begin(), expected.end(), [&](int32_t a, int32_t b) {
      const float x = row[static_cast<size_t>(a)];
      const float y = row[static_cast<size_t>(b)];
      return x > y || (x == y && a < b);
    });
    expected.resize(std::min<size_t>(count, row.size()));
    std::vector<int32_t> got;
    select_top(row, count, got);
    CHECK(got == expected);
  }
}

TEST_CASE("bad rows are errors") {
  SamplerScratch scratch;
  for (const size_t at : {0u, 15u, 16u, 39u}) {
    for (const float bad : {std::nanf(""), kInf}) {
      std::vector<float> row(40, 1.0F);
      row[at] = bad;
      const Result<SampledToken> token = make({.top_logprobs = 2}, 40).sample(row, {}, scratch);
      REQUIRE_FALSE(token.ok());
      CHECK(token.error().code == Errc::corrupt);
      CHECK(token.error().message.find("token " + std::to_string(at)) != std::string::npos);
    }
  }
  const std::vector<float> none(40, -kInf);
  CHECK_FALSE(make({}, 40).sample(none, {}, scratch).ok());
  const uint64_t nothing = 0;
  CHECK_FALSE(make({}, 40).sample(std::vector<float>(40, 0.0F), {&nothing, 1}, scratch).ok());
}

TEST_CASE("a draw depends on the seed and its index only") {
  CHECK(uniform_draw(0, 0) == uniform_draw(0, 0));
  CHECK(uniform_draw(0, 0) != uniform_draw(0, 1));
  CHECK(uniform_draw(0, 1) != uniform_draw(1, 0));
  // Frozen: answers of a seed must not change between versions.
  CHECK(uniform_draw(0, 0) == 0.65244848637403219);
  CHECK(uniform_draw(42, 7) == 0.73472045846236389);
  CHECK(uniform_draw(~uint64_t{0}, 1'000'000) == 0.46113146840768859);
  double mean = 0;
  double square = 0;
  double product = 0;
  constexpr int kDraws = 100'000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = uniform_draw(static_cast<uint64_t>(i), 5);
    const double next = uniform_draw(static_cast<uint64_t>(i), 6);
    REQUIRE((u >= 0 && u < 1));
    mean += u / kDraws;
    square += u * u / kDraws;
    product += u * next / kDraws;
  }
  CHECK(std::abs(mean - 0.5) < 0.005);
  CHECK(std::abs(square - 1.0 / 3) < 0.005);
  CHECK(std::abs(product - 0.25) < 0.005);

  const std::vector<float> row = random_row(500, 1);
  SamplerScratch scratch;
  const auto sequence = [&](uint64_t seed) {
    Sampler sampler = make({.temperature = 5, .seed = seed}, row.size());
    std::vector<int32_t> out;
    for (int i = 0; i < 20; ++i) {
      out.push_back(sampler.sample(row, {}, scratch)->token);
      CHECK(sampler.sample(row, {}, scratch)->token == out.back());  // asking twice changes nothing
      sampler.accept(out.back());
    }
    return out;
  };
  CHECK(sequence(9) == sequence(9));
  CHECK(sequence(9) != sequence(10));
}

TEST_CASE("parameters out of range name their field") {
  const auto path = [](const SamplingParams& p) {
    const Result<void> result = validate(p, 100);
    return result.ok() ? std::string() : result.error().path;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(path({}).empty());
  CHECK(path({.temperature = -0.1}) == "temperature");
  CHECK(path({.temperature = nan}) == "temperature");
  CHECK(path({.top_p = 0}) == "top_p");
  CHECK(path({.top_p = 1.01}) == "top_p");
  CHECK(path({.min_p = 1.5}) == "min_p");
  CHECK(path({.repetition_penalty = 0}) == "repetition_penalty");
  CHECK(path({.repetition_last_n = -2}) == "repetition_last_n");
  CHECK(path({.presence_penalty = nan}) == "presence_penalty");
  CHECK(path({.frequency_penalty = 1e9}) == "frequency_penalty");
  CHECK(path({.top_logprobs = 21}) == "top_logprobs");
  CHECK(path({.logit_bias = {{100, 1.0F}}}) == "logit_bias.100");
  CHECK(path({.logit_bias = {{-1, 1.0F}}}) == "logit_bias.-1");
  CHECK(path({.logit_bias = {{1, kInf}}}) == "logit_bias.1");
  CHECK(path({.logit_bias = {{1, 1.0F}, {1, 2.0F}}}) == "logit_bias.1");
}

}  // namespace
}  // namespace tandem::engine
