#include "engine/sampling/row_math.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

namespace tandem::engine {
namespace {

constexpr size_t kBlock = 16;
constexpr float kSmallestExponent = -87.0F;  // exp() below is a denormal: counted as 0

// Range reduction x = n ln2 + r, |r| <= ln2 / 2, then the Taylor polynomial of degree 7 in r (its
// remainder there is below 1e-8) and a shift of the exponent by n. ln2 is split in two so that the
// product n * high part is exact.
inline float exp_of_nonpositive(float x) {
  constexpr float kLog2e = 1.442695041F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const float clamped = x < kSmallestExponent ? kSmallestExponent : x;
  const float shifted = clamped * kLog2e + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  float p = 1.0F / 5040.0F;
  p = p * r + 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const int32_t exponent = static_cast<int32_t>(n) + 127;
  const float power = std::bit_cast<float>(exponent << 23);
  return x < kSmallestExponent ? 0.0F : p * power;
}

void exp_block(const float* logits, float peak, float scale, float* out) {
  for (size_t j = 0; j < kBlock; ++j) out[j] = exp_of_nonpositive((logits[j] - peak) * scale);
}

// In four lanes: a chain of 16 dependent additions would cost more than the exponentials.
float block_sum(const float* block) {
  std::array<float, 4> lanes{};
  for (size_t j = 0; j < kBlock; j += 4) {
    for (size_t lane = 0; lane < 4; ++lane) lanes[lane] += block[j + lane];
  }
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

// Ascending keys are descending logits, then ascending ids.
uint64_t sort_key(float logit, size_t id) {
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0F);  // -0 becomes +0: they are equal
  const uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return (uint64_t{~ascending} << 32) | id;
}

Error bad_logit(std::span<const float> logits) {
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] <= std::numeric_limits<float>::max())) {
      return make_error(Errc::corrupt, "logit of token " + std::to_string(i) + " is " +
                                           (std::isnan(logits[i]) ? "not a number" : "infinite"));
    }
  }
  return make_error(Errc::corrupt, "no token can be chosen: all " + std::to_string(logits.size()) +
                                       " logits are -infinity");
}

void select_by_keys(std::span<const float> logits, size_t count, std::vector<int32_t>& tokens) {
  std::vector<uint64_t> keys(logits.size());
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = sort_key(logits[i], i);
  const auto middle = keys.begin() + static_cast<std::ptrdiff_t>(count);
  if (middle != keys.end()) std::nth_element(keys.begin(), middle, keys.end());
  std::sort(keys.begin(), middle);
  tokens.resize(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>(keys[i] & 0x7FFFFFFFu);
}

struct ByLogit {
  std::span<const float> logits;
  bool operator()(int32_t a, int32_t b) const {
    const float x = logits[static_cast<size_t>(a)];
    const float y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  }
};

}  // namespace

Result<RowPeak> find_peak(std::span<const float> logits) {
  std::array<float, kBlock> high;
  high.fill(-std::numeric_limits<float>::infinity());
  std::array<int32_t, kBlock> bad{};
  size_t i = 0;
  for (; i + kBlock <= logits.size(); i += kBlock) {
    const float* block = logits.data() + i;
    for (size_t j = 0; j < kBlock; ++j) high[j] = block[j] > high[j] ? block[j] : high[j];
    for (size_t j = 0; j < kBlock; ++j) {
      bad[j] |= block[j] <= std::numeric_limits<float>::max() ? 0 : 1;
    }
  }
  for (; i < logits.size(); ++i) {
    high[0] = std::max(high[0], logits[i]);
    bad[0] |= logits[i] <= std::numeric_limits<float>::max() ? 0 : 1;
  }
  const float peak = *std::max_element(high.begin(), high.end());
  const bool any_bad = std::any_of(bad.begin(), bad.end(), [](int32_t b) { return b != 0; });
  if (any_bad || peak == -std::numeric_limits<float>::infinity()) return bad_logit(logits);
  const auto at = std::find(logits.begin(), logits.end(), peak);
  return RowPeak{.logit = peak, .token = static_cast<int32_t>(at - logits.begin())};
}

double exp_pass(std::span<const float> logits, float peak, float scale, std::span<float> out) {
  std::array<float, kBlock> block;
  double sum = 0;
  size_t i = 0;
  for (; i + kBlock <= logits.size(); i += kBlock) {
    float* target = out.empty() ? block.data() : out.data() + i;
    exp_block(logits.data() + i, peak, scale, target);
    sum += static_cast<double>(block_sum(target));
  }
  for (; i < logits.size(); ++i) {
    const float value = exp_of_nonpositive((logits[i] - peak) * scale);
    if (!out.empty()) out[i] = value;
    sum += static_cast<double>(value);
  }
  return sum;
}

double sum_of(std::span<const float> values) {
  double sum = 0;
  size_t i = 0;
  for (; i + kBlock <= values.size(); i += kBlock) {
    sum += static_cast<double>(block_sum(values.data() + i));
  }
  for (; i < values.size(); ++i) sum += static_cast<double>(values[i]);
  return sum;
}

size_t find_share(std::span<const float> weights, double target) {
  double sum = 0;
  size_t i = 0;
  for (; i + kBlock <= weights.size(); i += kBlock) {
    const double behind = sum + static_cast<double>(block_sum(weights.data() + i));
    if (behind > target) break;
    sum = behind;
  }
  size_t last = weights.size();  // the last positive one seen
  for (size_t k = i; k < weights.size(); ++k) {
    if (weights[k] <= 0) continue;
    sum += static_cast<double>(weights[k]);
    last = k;
    if (sum > target) return k;
  }
  // Rounding of the sum: the target lies past the end.
  for (size_t k = weights.size(); last == weights.size() && k > 0; --k) {
    if (weights[k - 1] > 0) last = k - 1;
  }
  return last == weights.size() ? 0 : last;
}

void select_top(std::span<const float> logits, size_t count, std::vector<int32_t>& tokens) {
  constexpr size_t kHeapMax = 1024;  // beyond, one partition of all ids is faster than a heap
  const ByLogit better{logits};
  count = std::min(count, logits.size());
  if (count > kHeapMax) return select_by_keys(logits, count, tokens);
  // A heap whose front is the worst kept token. A later id must be strictly higher to enter.
  tokens.resize(count);
  if (count == 0) return;
  std::iota(tokens.begin(), tokens.end(), 0);
  std::make_heap(tokens.begin(), tokens.end(), better);
  float worst = logits[static_cast<size_t>(tokens.front())];
  for (size_t i = count; i < logits.size(); ++i) {
    if (!(logits[i] > worst)) continue;
    std::pop_heap(tokens.begin(), tokens.end(), better);
    tokens.back() = static_cast<int32_t>(i);
    std::push_heap(tokens.begin(), tokens.end(), better);
    worst = logits[static_cast<size_t>(tokens.front())];
  }
  std::sort_heap(tokens.begin(), tokens.end(), better);
}

}  // namespace tandem::engine
