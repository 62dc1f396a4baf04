#include <algorithm>

#include "memory_budget/levels.h"

namespace tandem::budget {
namespace {

constexpr int64_t kShedChunkTokens = 2048;
constexpr int64_t kChunkTokensMin = 32;  // a block of the engine's prefill
constexpr int64_t kLongPromptTokens = 8192;
constexpr int64_t kPromptTokensCap = 65'536;

constexpr ShedSet kYellow = shed_bit(ShedStep::optional_no_long_prefills) |
                            shed_bit(ShedStep::optional_freeze_growth) |
                            shed_bit(ShedStep::pause_background) |
                            shed_bit(ShedStep::optional_half_slots);
constexpr ShedSet kOrange =
    kYellow | shed_bit(ShedStep::optional_one_slot) |
    shed_bit(ShedStep::optional_drop_prefix_cache) | shed_bit(ShedStep::smaller_chunks) |
    shed_bit(ShedStep::advise_clean_cache) | shed_bit(ShedStep::default_prompt_cap);
constexpr ShedSet kRed = kOrange | shed_bit(ShedStep::optional_off);
constexpr ShedSet kDefaultToo = shed_bit(ShedStep::default_short_prompts) |
                                shed_bit(ShedStep::default_fewer_slots);

}  // namespace

const char* shed_step_name(ShedStep step) noexcept {
  switch (step) {
    case ShedStep::optional_no_long_prefills: return "optional_no_long_prefills";
    case ShedStep::optional_freeze_growth: return "optional_freeze_growth";
    case ShedStep::pause_background: return "pause_background";
    case ShedStep::optional_half_slots: return "optional_half_slots";
    case ShedStep::optional_one_slot: return "optional_one_slot";
    case ShedStep::optional_drop_prefix_cache: return "optional_drop_prefix_cache";
    case ShedStep::smaller_chunks: return "smaller_chunks";
    case ShedStep::advise_clean_cache: return "advise_clean_cache";
    case ShedStep::default_prompt_cap: return "default_prompt_cap";
    case ShedStep::optional_off: return "optional_off";
    case ShedStep::default_short_prompts: return "default_short_prompts";
    case ShedStep::default_fewer_slots: return "default_fewer_slots";
  }
  return "?";
}

ShedSet shed_for(Level level, bool optional_gone) noexcept {
  switch (level) {
    case Level::green: return 0;
    case Level::yellow: return kYellow;
    case Level::orange: return kOrange;
    case Level::red:
    case Level::black: return optional_gone ? kRed | kDefaultToo : kRed;
  }
  return 0;
}

ShedChanges shed_changes(ShedSet before, ShedSet after) noexcept {
  ShedChanges out;
  for (size_t i = kShedStepCount; i-- > 0;) {
    const ShedStep step = static_cast<ShedStep>(i);
    if ((before & shed_bit(step)) != 0 && (after & shed_bit(step)) == 0) {
      out.items[out.count++] = {step, false};
    }
  }
  for (size_t i = 0; i < kShedStepCount; ++i) {
    const ShedStep step = static_cast<ShedStep>(i);
    if ((before & shed_bit(step)) == 0 && (after & shed_bit(step)) != 0) {
      out.items[out.count++] = {step, true};
    }
  }
  return out;
}

int64_t shed_optional_slots(ShedSet set, int64_t configured) noexcept {
  if ((set & shed_bit(ShedStep::optional_off)) != 0) return 0;
  if ((set & shed_bit(ShedStep::optional_one_slot)) != 0) return std::min<int64_t>(1, configured);
  if ((set & shed_bit(ShedStep::optional_half_slots)) != 0) {
    return configured <= 1 ? configured : configured / 2;
  }
  return configured;
}

int64_t shed_default_slots(ShedSet set, int64_t configured) noexcept {
  const bool fewer = (set & shed_bit(ShedStep::default_fewer_slots)) != 0;
  return fewer && configured > 1 ? configured / 2 : configured;
}

int64_t shed_prompt_tokens(ShedSet set, Role role, int64_t context_tokens) noexcept {
  const auto has = [set](ShedStep step) { return (set & shed_bit(step)) != 0; };
  const int64_t short_prompt = std::max<int64_t>(1, std::min(kLongPromptTokens, context_tokens / 4));
  if (role == Role::optional_model) return has(ShedStep::optional_no_long_prefills) ? short_prompt : 0;
  if (has(ShedStep::default_short_prompts)) return short_prompt;
  if (!has(ShedStep::default_prompt_cap)) return 0;
  return std::max<int64_t>(1, std::min(kPromptTokensCap, context_tokens / 2));
}

int64_t shed_retry_after_s(Level level) noexcept {
  switch (level) {
    case Level::green: return 0;
    case Level::yellow: return 5;
    case Level::orange: return 15;
    case Level::red:
    case Level::black: return 30;
  }
  return 0;
}

// Yellow halves the optional model's chunk (DESIGN 4), orange quarters everybody's, to 2048 at most.
int64_t shed_chunk_tokens(ShedSet set, Role role, int64_t configured) noexcept {
  const auto has = [set](ShedStep step) { return (set & shed_bit(step)) != 0; };
  const auto part = [configured](int64_t of) { return std::max(std::min(configured, kChunkTokensMin), configured / of); };
  if (has(ShedStep::smaller_chunks)) return std::min(part(4), kShedChunkTokens);
  return role == Role::optional_model && has(ShedStep::optional_half_slots) ? part(2) : configured;
}

}  // namespace tandem::budget
