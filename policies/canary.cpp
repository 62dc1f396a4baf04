#include "policies/canary.h"

#include <algorithm>
#include <array>
#include <vector>

namespace tandem::policies {
namespace {

constexpr std::array<const char*, 4> kNames{"alone", "idle", "prefill", "decode"};
constexpr size_t kEarlierMin = 3;  // of the same cell; one measure alone is enough to compare idle ones with

std::vector<int64_t> times_of(std::span<const CanaryMeasure> measures, CanaryCell cell) {
  std::vector<int64_t> out;
  for (const CanaryMeasure& measure : measures) {
    if (measure.cell == cell && measure.us_per_token > 0) out.push_back(measure.us_per_token);
  }
  std::sort(out.begin(), out.end());
  return out;
}

int64_t baseline_of(CanaryCell cell, std::span<const CanaryMeasure> earlier) {
  const std::vector<int64_t> own = times_of(earlier, cell);
  if (cell == CanaryCell::idle) {
    const std::vector<int64_t> alone = times_of(earlier, CanaryCell::alone);
    if (!alone.empty()) return alone[alone.size() / 2];
  }
  return own.size() < kEarlierMin ? 0 : own[own.size() / 2];
}

}  // namespace

const char* canary_cell_name(CanaryCell cell) noexcept { return kNames[static_cast<size_t>(cell)]; }

std::optional<CanaryCell> canary_cell(std::string_view name) noexcept {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<CanaryCell>(i);
  }
  return std::nullopt;
}

std::string canary_hindrance(const CanaryBox& box, int64_t idle_ms_min) {
  if (!box.default_ready) return "the default model is not ready";
  if (!box.optional_ready && !box.optional_off) return "the optional model is starting or stopping";
  if (box.pressed) return "the host is short of memory";
  if (box.idle_ms < idle_ms_min) return "requests of clients run";
  return "";
}

CanaryCell quiet_cell(const CanaryBox& box) {
  return box.optional_off ? CanaryCell::alone : CanaryCell::idle;
}

CanaryVerdict judge_canary(const CanaryMeasure& now, std::span<const CanaryMeasure> earlier,
                           int64_t loss_permille_max) {
  CanaryVerdict out{.baseline_us = baseline_of(now.cell, earlier)};
  if (out.baseline_us == 0 || now.us_per_token <= 0) return out;
  out.loss_permille = 1000 - 1000 * out.baseline_us / now.us_per_token;
  out.too_slow = out.loss_permille > loss_permille_max;
  return out;
}

}  // namespace tandem::policies
