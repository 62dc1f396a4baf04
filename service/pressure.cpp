#include "service/pressure.h"

#include <array>
#include <cstdio>

namespace tandem::service {
namespace {

Json shed_json(budget::ShedSet set) {
  Json out = Json::array();
  for (size_t i = 0; i < budget::kShedStepCount; ++i) {
    const auto step = static_cast<budget::ShedStep>(i);
    if ((set & budget::shed_bit(step)) != 0) out.push_back(budget::shed_step_name(step));
  }
  return out;
}

Json floor_json(int64_t enter, int64_t leave) {
  return Json::object({{"enter", enter}, {"leave", leave}});
}

}  // namespace

Json pressure_brief_json(const Pressure& pressure) {
  Json out = Json::object();
  out.set("level", budget::level_name(pressure.level)).set("shed", shed_json(pressure.shed));
  return out;
}

Json pressure_json(const Pressure& p) {
  Json signals = Json::array();
  for (const uint32_t signal : budget::kAllSignals) {
    if ((p.signals & signal) != 0) signals.push_back(budget::signal_name(signal));
  }
  Json floors = Json::object();
  floors.set("yellow", floor_json(p.floors.yellow_enter, p.floors.yellow_leave))
      .set("orange", floor_json(p.floors.orange_enter, p.floors.orange_leave))
      .set("red", floor_json(p.floors.red_enter, p.floors.red_leave))
      .set("black", floor_json(p.floors.black_enter, p.floors.black_leave));
  Json guard = Json::object();
  guard.set("mode", p.guard_mode)
      .set("pid", p.guard_pid)
      .set("restarts", p.guard_restarts)
      .set("problem", p.guard_problem);
  Json out = Json::object();
  out.set("level", budget::level_name(p.level))
      .set("signals", std::move(signals))
      .set("shed", shed_json(p.shed))
      .set("available_bytes", p.available_bytes)
      .set("fall_rate_per_s", p.fall_rate_per_s)
      .set("watched_by", p.from_guard ? "guard" : "tandemd")
      .set("optional_held", p.optional_held)
      .set("floors", std::move(floors))
      .set("guard", std::move(guard));
  return out;
}

std::string frozen_text(const Pressure& pressure) {
  if (!pressure.growth_frozen()) return "";
  return pressure_text(pressure.level, pressure.available_bytes) + ", no budget grows until it has recovered";
}

std::string pressure_text(budget::Level level, int64_t available_bytes) {
  std::array<char, 96> text{};
  const double gib = static_cast<double>(available_bytes) / static_cast<double>(budget::kGiB);
  const int n = std::snprintf(text.data(), text.size(), "the host is short of memory (level %s, %.1f GiB available)",
                              budget::level_name(level), gib);
  return {text.data(), static_cast<size_t>(n > 0 ? n : 0)};
}

}  // namespace tandem::service
