// Descriptions of the two big models as `tandem-engine --describe` gives them, written by hand from
// their published shapes, for tests of the plan.
#pragma once

#include "base/json.h"

namespace tandem_tests {

// Gemma 4 26B-A4B: 25 sliding layers (8 kv heads x 256, window 1024), every sixth full (2 x 512).
tandem::Json gemma4_26b();
// Qwen 27B hybrid: every fourth of 64 layers attends (4 kv heads x 256), the others Gated DeltaNet.
tandem::Json qwen35_27b();
// gpt-oss 20B: even layers sliding (window 128), odd ones full, 8 kv heads x 64.
tandem::Json gpt_oss_20b();
// Qwen3.5 35B-A3B: the hybrid as a mixture of experts.
tandem::Json qwen35moe_35b();

// Replaces one key of the architecture.
tandem::Json with_key(tandem::Json described, const char* key, tandem::Json value);

}  // namespace tandem_tests
