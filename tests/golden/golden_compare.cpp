#include "tests/golden/golden_compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <span>

#include "kernels/ops.h"

namespace tandem_tests {

using tandem::Errc;
using tandem::Json;
using tandem::Result;
using tandem::engine::LogitsFor;

namespace {

constexpr double kClearMargin = 0.3;

class LogProbabilities {
 public:
  LogProbabilities(ModelFixture& fixture, std::span<const float> logits)
      : logits_(logits), parts_(tandem::kernels::softmax_parts(*fixture.compute, logits)) {}
  [[nodiscard]] double operator[](int32_t token) const {
    return static_cast<double>(logits_[static_cast<size_t>(token)]) -
           static_cast<double>(parts_.max) - parts_.log_sum;
  }

 private:
  std::span<const float> logits_;
  tandem::kernels::SoftmaxParts parts_;
};

double relative_error(std::span<const float> ours, const Json::Array& exact) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double expected = exact[i].as_double();
    const double delta = static_cast<double>(ours[i]) - expected;
    difference += delta * delta;
    norm += expected * expected;
  }
  return std::sqrt(difference / norm);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// KL(exact || ours) over the stored best tokens and one bucket for all others.
double kl_with_rest(const LogProbabilities& ours, const Json::Array& top) {
  double kl = 0;
  double exact_sum = 0;
  double ours_sum = 0;
  for (const Json& entry : top) {
    const auto token = static_cast<int32_t>(entry.as_array()[0].as_integer());
    const double exact_log = entry.as_array()[1].as_double();
    const double exact = std::exp(exact_log);
    kl += exact * (exact_log - ours[token]);
    exact_sum += exact;
    ours_sum += std::exp(ours[token]);
  }
  const double exact_rest = std::max(1e-12, 1 - exact_sum);
  const double ours_rest = std::max(1e-12, 1 - ours_sum);
  return kl + exact_rest * std::log(exact_rest / ours_rest);
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// A NaN fails every bound, so comparisons are written to be true only for good values.
void expect_at_most(Failures& failures, const char* what, double value, double bound) {
  if (value <= bound) return;
  failures.push_back(std::string(what) + " is " + number(value) + ", at most " + number(bound));
}
void expect_at_least(Failures& failures, const char* what, double value, double bound) {
  if (value >= bound) return;
  failures.push_back(std::string(what) + " is " + number(value) + ", at least " + number(bound));
}

Result<void> score_passage(ModelFixture& fixture, const Json& passage, size_t tokens,
                           RealScore& score) {
  const std::vector<int32_t> all = golden_ids(*passage.find("ids"));
  const auto ids = std::span(all).first(std::min(tokens, all.size()));
  const Json::Array& nll = passage.find("nll")->as_array();
  const std::vector<int32_t> best = golden_ids(*passage.find("argmax"));
  double ours_sum = 0;
  double exact_sum = 0;
  int64_t equal = 0;
  int64_t places = 0;
  TRY_ASSIGN(auto sequence, fixture.store->create_sequence());
  const auto sink = [&](int64_t position, std::span<const float> logits) {
    const auto at = static_cast<size_t>(position);
    if (at == 0 || at + 1 >= ids.size()) return;
    const LogProbabilities ours(fixture, logits);
    ours_sum -= ours[ids[at + 1]];
    exact_sum += nll[at].as_double();
    if (argmax(logits) == best[at]) ++equal;
    ++places;
  };
  TRY(fixture.run(*sequence, ids, 64, LogitsFor::all, sink));
  const auto count = static_cast<double>(places);
  score.nll = ours_sum / count;
  score.nll_exact = exact_sum / count;
  score.top1_equal = static_cast<double>(equal) / count;
  score.top1_equal_peer = passage.find("llama_cpp_top1_equal")->as_double();
  return {};
}

Result<void> score_prompts(ModelFixture& fixture, const Json::Array& prompts, size_t count,
                           RealScore& score) {
  std::vector<double> kl;
  std::vector<double> kl_peer;
  for (size_t i = 0; i < std::min(count, prompts.size()); ++i) {
    const Json& prompt = prompts[i];
    TRY_ASSIGN(auto sequence, fixture.store->create_sequence());
    const auto sink = [&](int64_t, std::span<const float> logits) {
      const Json::Array& top = prompt.find("top")->as_array();
      kl.push_back(kl_with_rest(LogProbabilities(fixture, logits), top));
      kl_peer.push_back(prompt.find("llama_cpp_kl64")->as_double());
      const int64_t expected = top[0].as_array()[0].as_integer();
      if (prompt.find("margin")->as_double() > kClearMargin && argmax(logits) != expected) {
        ++score.clear_misses;
      }
    };
    TRY(fixture.run(*sequence, golden_ids(*prompt.find("ids")), 64, LogitsFor::last, sink));
  }
  score.kl_median = median(kl);
  score.kl_median_peer = median(kl_peer);
  score.kl_mean = mean(kl);
  score.kl_mean_peer = mean(kl_peer);
  return {};
}

}  // namespace

Result<Json> read_golden(const std::string& name) {
  const std::string path = source_path("tests/golden/data/" + name);
  std::ifstream file(path, std::ios::binary);
  if (!file) return tandem::make_error(Errc::io, path + " cannot be read");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return tandem::parse_json(text);
}

std::vector<int32_t> golden_ids(const Json& array) {
  std::vector<int32_t> ids;
  for (const Json& id : array.as_array()) ids.push_back(static_cast<int32_t>(id.as_integer()));
  return ids;
}

Result<HybridScore> score_hybrid(ModelFixture& fixture, const Json& golden, size_t cases_max) {
  HybridScore score;
  int64_t equal = 0;
  int64_t places = 0;
  const Json::Array& cases = golden.find("cases")->as_array();
  for (size_t i = 0; i < std::min(cases_max, cases.size()); ++i) {
    const std::vector<int32_t> ids = golden_ids(*cases[i].find("ids"));
    const std::vector<int32_t> best = golden_ids(*cases[i].find("argmax"));
    double nll = 0;
    TRY_ASSIGN(auto sequence, fixture.store->create_sequence());
    const auto sink = [&](int64_t position, std::span<const float> logits) {
      const auto at = static_cast<size_t>(position);
      if (argmax(logits) == best[at]) ++equal;
      ++places;
      if (at + 1 < ids.size()) {
        nll -= LogProbabilities(fixture, logits)[ids[at + 1]];
      } else {
        const double error = relative_error(logits, cases[i].find("last_logits")->as_array());
        // Written so that a NaN sticks.
        if (!(error <= score.worst_logits_error)) score.worst_logits_error = error;
      }
    };
    TRY(fixture.run(*sequence, ids, 64, LogitsFor::all, sink));
    const double nll_error = std::abs(nll / static_cast<double>(ids.size() - 1) -
                                      cases[i].find("nll")->as_double());
    if (!(nll_error <= score.worst_nll_error)) score.worst_nll_error = nll_error;
  }
  score.argmax_equal = static_cast<double>(equal) / static_cast<double>(places);
  return score;
}

Failures check_hybrid(const HybridScore& score, const HybridBounds& bounds) {
  Failures failures;
  expect_at_most(failures, "relative error of the last logits", score.worst_logits_error,
                 bounds.logits_error_max);
  expect_at_least(failures, "share of equal argmax", score.argmax_equal, bounds.argmax_equal_min);
  expect_at_most(failures, "error of the mean nll", score.worst_nll_error, bounds.nll_error_max);
  return failures;
}

Result<RealScore> score_real(ModelFixture& fixture, const Json& golden, size_t passage_tokens,
                             size_t prompts_max) {
  RealScore score;
  TRY(score_passage(fixture, *golden.find("passage"), passage_tokens, score));
  TRY(score_prompts(fixture, golden.find("prompts")->as_array(), prompts_max, score));
  return score;
}

Failures check_real(const RealScore& score) {
  Failures failures;
  expect_at_most(failures, "distance of the mean nll from the exact value",
                 std::abs(score.nll - score.nll_exact) / score.nll_exact, 0.0015);
  expect_at_least(failures, "share of equal best tokens", score.top1_equal,
                  score.top1_equal_peer - 0.01);
  expect_at_most(failures, "median KL over the prompts", score.kl_median,
                 1.25 * score.kl_median_peer);
  expect_at_most(failures, "mean KL over the prompts", score.kl_mean, 1.5 * score.kl_mean_peer);
  if (score.clear_misses != 0) {
    failures.push_back(std::to_string(score.clear_misses) +
                       " prompts with a clear best token have another one");
  }
  return failures;
}

}  // namespace tandem_tests
