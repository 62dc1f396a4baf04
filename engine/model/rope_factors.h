// Angle factors of rotary positions (reference models.md section 0). Pure; any thread.
#pragma once

#include <span>
#include <vector>

#include "engine/model/config.h"
#include "engine/model/operation.h"

namespace tandem::engine {

// theta_i = position * base^(-2i/dims) * scale / factors[i], cos and sin times magnitude.
// frequencies: the file's rope_freqs tensor [dims / 2], or empty.
AnglesOp make_angles(const RopeConfig& rope, std::span<const float> frequencies);

}  // namespace tandem::engine
