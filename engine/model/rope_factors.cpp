#include "engine/model/rope_factors.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem::engine {
namespace {

// The pair whose wave turns `rotations` times within the original context.
double pair_at_rotations(const RopeConfig& rope, double rotations) {
  const double waves =
      static_cast<double>(rope.original_context) / (2.0 * std::numbers::pi * rotations);
  return static_cast<double>(rope.dims) * std::log(waves) / (2.0 * std::log(rope.base));
}

}  // namespace

AnglesOp make_angles(const RopeConfig& rope, std::span<const float> frequencies) {
  AnglesOp angles;
  angles.factors.assign(frequencies.begin(), frequencies.end());
  switch (rope.scaling) {
    case RopeScaling::none:
      break;
    case RopeScaling::linear:
      angles.scale = 1.0 / rope.factor;
      break;
    case RopeScaling::yarn: {
      if (angles.factors.empty()) angles.factors.assign(static_cast<size_t>(rope.dims / 2), 1.0F);
      const double low = std::max(0.0, std::floor(pair_at_rotations(rope, rope.yarn_beta_fast)));
      const double high = std::min(static_cast<double>(rope.dims - 1),
                                   std::ceil(pair_at_rotations(rope, rope.yarn_beta_slow)));
      for (size_t i = 0; i < angles.factors.size(); ++i) {
        const double ramp = (static_cast<double>(i) - low) / std::max(0.001, high - low);
        const double extrapolated = 1.0 - std::clamp(ramp, 0.0, 1.0);
        const double share = (1.0 - extrapolated) / rope.factor + extrapolated;
        angles.factors[i] = static_cast<float>(static_cast<double>(angles.factors[i]) / share);
      }
      angles.magnitude = rope.attention_factor * (1.0 + 0.1 * std::log(rope.factor));
      break;
    }
  }
  return angles;
}

}  // namespace tandem::engine
