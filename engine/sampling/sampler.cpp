#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "engine/sampling/row_math.h"

namespace tandem::engine {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

Error out_of_range(const char* field, double value, const char* range) {
  return make_error(Errc::invalid_argument,
                    std::string(field) + " is " + std::to_string(value) + ", must be " + range,
                    field);
}

// Written so that NaN fails.
bool within(double value, double low, double high) { return value >= low && value <= high; }

Result<void> validate_bias(const std::vector<LogitBias>& entries, size_t vocab_size) {
  std::unordered_set<int32_t> seen;
  for (size_t i = 0; i < entries.size(); ++i) {
    const LogitBias& entry = entries[i];
    const std::string path = "logit_bias." + std::to_string(entry.token);
    if (entry.token < 0 || static_cast<size_t>(entry.token) >= vocab_size) {
      return make_error(Errc::invalid_argument,
                        "token is outside the vocabulary of " + std::to_string(vocab_size), path);
    }
    if (!within(static_cast<double>(entry.bias), -1e9, 1e9)) {
      return make_error(Errc::invalid_argument, "bias must be a finite number", path);
    }
    if (!seen.insert(entry.token).second) {
      return make_error(Errc::invalid_argument, "token is named twice", path);
    }
  }
  return {};
}

void apply_mask(std::span<float> logits, TokenMask allowed) {
  for (size_t word = 0; word * 64 < logits.size(); ++word) {
    const uint64_t bits = word < allowed.size() ? allowed[word] : 0;
    if (bits == ~uint64_t{0}) continue;
    const size_t end = std::min(logits.size(), word * 64 + 64);
    for (size_t t = word * 64; t < end; ++t) {
      if (((bits >> (t % 64)) & 1) == 0) logits[t] = kNever;
    }
  }
}

// The prefix of the sorted candidates that top_p keeps; `weights` are theirs, `total` is the sum
// over all tokens that survived the filters before. Zero: the candidates do not reach top_p.
size_t top_p_prefix(std::span<const float> weights, double total, double top_p) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    sum += static_cast<double>(weights[i]);
    if (sum >= top_p * total) return i + 1;
  }
  return 0;
}

struct Filters {
  float peak = 0;
  float inverse_temperature = 1;
  double min_p = 0;
  double top_p = 1;
  size_t top_k = 0;  // 0: off
  double draw = 0;
};

// Weights of scratch.tokens, cut where min_p ends; returns how many are left (at least one).
size_t weigh_candidates(const Filters& f, SamplerScratch& scratch) {
  std::vector<float>& weights = scratch.weights;
  weights.resize(scratch.tokens.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = scratch.logits[static_cast<size_t>(scratch.tokens[i])];
  }
  exp_pass(weights, f.peak, f.inverse_temperature, weights);
  size_t kept = weights.size();
  while (kept > 1 && static_cast<double>(weights[kept - 1]) < f.min_p) --kept;
  return kept;
}

int32_t choose_sorted(const Filters& f, size_t count, double total, SamplerScratch& scratch) {
  std::span<const float> weights(scratch.weights.data(), count);
  if (f.top_p < 1) {
    const size_t prefix = top_p_prefix(weights, total, f.top_p);
    weights = weights.first(prefix == 0 ? count : prefix);
  }
  return scratch.tokens[find_share(weights, f.draw * sum_of(weights))];
}

int32_t choose_top_k(const Filters& f, SamplerScratch& scratch) {
  select_top(scratch.logits, f.top_k, scratch.tokens);
  const size_t kept = weigh_candidates(f, scratch);
  return choose_sorted(f, kept, sum_of({scratch.weights.data(), kept}), scratch);
}

// All tokens compete: candidates are sorted only as far as top_p needs them.
int32_t choose_open(const Filters& f, SamplerScratch& scratch) {
  const size_t vocab = scratch.logits.size();
  scratch.weights.resize(vocab);
  double total = exp_pass(scratch.logits, f.peak, f.inverse_temperature, scratch.weights);
  if (f.min_p > 0) {
    for (float& w : scratch.weights) w = static_cast<double>(w) < f.min_p ? 0.0F : w;
    total = sum_of(scratch.weights);
  }
  if (f.top_p >= 1) {
    return static_cast<int32_t>(find_share(scratch.weights, f.draw * total));
  }
  for (size_t count = 64;; count *= 8) {
    select_top(scratch.logits, count, scratch.tokens);
    const size_t kept = weigh_candidates(f, scratch);
    const bool complete = kept < scratch.tokens.size() || scratch.tokens.size() == vocab;
    if (complete || top_p_prefix({scratch.weights.data(), kept}, total, f.top_p) > 0) {
      return choose_sorted(f, kept, total, scratch);
    }
  }
}

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

double uniform_draw(uint64_t seed, uint64_t index) {
  constexpr uint64_t kGamma = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio, odd
  const uint64_t bits = mix(mix(seed + kGamma) + (index + 1) * kGamma);
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

Result<void> validate(const SamplingParams& p, size_t vocab_size) {
  if (!within(p.temperature, 0, 100)) {
    return out_of_range("temperature", p.temperature, "in [0, 100]");
  }
  if (!within(p.top_p, 0, 1) || p.top_p == 0) return out_of_range("top_p", p.top_p, "in (0, 1]");
  if (!within(p.min_p, 0, 1)) return out_of_range("min_p", p.min_p, "in [0, 1]");
  if (!within(p.repetition_penalty, 0.01, 100)) {
    return out_of_range("repetition_penalty", p.repetition_penalty, "in [0.01, 100]");
  }
  if (p.repetition_last_n < -1) {
    return out_of_range("repetition_last_n", p.repetition_last_n, "-1 or more");
  }
  if (!within(p.presence_penalty, -100, 100)) {
    return out_of_range("presence_penalty", p.presence_penalty, "in [-100, 100]");
  }
  if (!within(p.frequency_penalty, -100, 100)) {
    return out_of_range("frequency_penalty", p.frequency_penalty, "in [-100, 100]");
  }
  if (p.top_logprobs && !within(*p.top_logprobs, 0, kTopLogprobsMax)) {
    return out_of_range("top_logprobs", *p.top_logprobs, "in [0, 20]");
  }
  return validate_bias(p.logit_bias, vocab_size);
}

Result<Sampler> Sampler::create(SamplingParams params, size_t vocab_size) {
  CHECK(vocab_size > 0 && vocab_size <= size_t{1} << 30);
  TRY(validate(params, vocab_size));
  return Sampler(std::move(params), vocab_size);
}

Sampler::Sampler(SamplingParams params, size_t vocab_size)
    : params_(std::move(params)), vocab_size_(vocab_size) {}

void Sampler::push_window(int32_t token) {
  CHECK(token >= 0 && static_cast<size_t>(token) < vocab_size_);
  if (params_.repetition_penalty == 1.0 || params_.repetition_last_n == 0) return;
  ++window_counts_[token];
  if (params_.repetition_last_n < 0) return;
  if (window_.size() < static_cast<size_t>(params_.repetition_last_n)) {
    window_.push_back(token);
    return;
  }
  const int32_t oldest = std::exchange(window_[window_next_], token);
  window_next_ = (window_next_ + 1) % window_.size();
  const auto at = window_counts_.find(oldest);
  if (--at->second == 0) window_counts_.erase(at);
}

void Sampler::add_prompt(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) push_window(token);
}

void Sampler::accept(int32_t token) {
  push_window(token);
  ++output_counts_[token];
  ++output_tokens_;
}

void Sampler::apply_penalties(std::span<float> logits) const {
  const auto penalty = static_cast<float>(params_.repetition_penalty);
  for (const auto& [token, count] : window_counts_) {
    float& x = logits[static_cast<size_t>(token)];
    x = x > 0 ? x / penalty : x * penalty;
  }
  if (params_.presence_penalty == 0 && params_.frequency_penalty == 0) return;
  for (const auto& [token, count] : output_counts_) {
    logits[static_cast<size_t>(token)] -= static_cast<float>(
        params_.presence_penalty + params_.frequency_penalty * static_cast<double>(count));
  }
}

Result<SampledToken> Sampler::sample(std::span<const float> logits, TokenMask allowed,
                                     SamplerScratch& scratch) const {
  CHECK(logits.size() == vocab_size_);
  TRY(find_peak(logits));  // the row itself must be sound, whatever the mask would hide
  scratch.logits.assign(logits.begin(), logits.end());
  apply_penalties(scratch.logits);
  for (const LogitBias& entry : params_.logit_bias) {
    scratch.logits[static_cast<size_t>(entry.token)] += entry.bias;
  }
  if (!allowed.empty()) apply_mask(scratch.logits, allowed);
  TRY_ASSIGN(const RowPeak peak, find_peak(scratch.logits));

  SampledToken result{.token = peak.token, .logprobs = std::nullopt};
  if (params_.temperature > 0) {
    const double inverse = std::min(1.0 / params_.temperature, 1e30);
    const Filters filters{
        .peak = peak.logit,
        .inverse_temperature = static_cast<float>(inverse),
        .min_p = params_.min_p,
        .top_p = params_.top_p,
        .top_k = params_.top_k > 0 ? static_cast<size_t>(params_.top_k) : 0,
        .draw = uniform_draw(params_.seed, output_tokens_)};
    const bool use_top_k = filters.top_k > 0 && filters.top_k < vocab_size_;
    result.token = use_top_k ? choose_top_k(filters, scratch) : choose_open(filters, scratch);
  }
  if (params_.top_logprobs) {
    TRY_ASSIGN(result.logprobs,
               compute_logprobs(logits, result.token, *params_.top_logprobs, scratch));
  }
  return result;
}

Result<LogprobRow> compute_logprobs(std::span<const float> logits, int32_t token,
                                    int32_t top_count, SamplerScratch& scratch) {
  CHECK(token >= 0 && static_cast<size_t>(token) < logits.size());
  CHECK(top_count >= 0 && top_count <= kTopLogprobsMax);
  TRY_ASSIGN(const RowPeak peak, find_peak(logits));
  const double log_sum = std::log(exp_pass(logits, peak.logit, 1.0F, {}));
  const auto logprob = [&](int32_t t) {
    const float x = logits[static_cast<size_t>(t)];
    return static_cast<double>(x) - static_cast<double>(peak.logit) - log_sum;
  };
  LogprobRow row{.logprob = logprob(token), .top = {}};
  select_top(logits, static_cast<size_t>(top_count), scratch.tokens);
  for (const int32_t t : scratch.tokens) row.top.push_back({.token = t, .logprob = logprob(t)});
  return row;
}

}  // namespace tandem::engine
