#include "service/memory_floors.h"

#include <algorithm>
#include <string>

#include "service/config_units.h"

namespace tandem::service {
namespace {

struct Named {
  const char* name;
  int64_t bytes;
};

Result<void> in_order(const Named& lower, const Named& higher, bool equal_allowed) {
  if (lower.bytes < higher.bytes || (equal_allowed && lower.bytes == higher.bytes)) return {};
  const auto shown = [](const Named& floor) {
    return std::string(floor.name) + " is " + std::to_string(floor.bytes >> 20) + " MiB";
  };
  return make_error(Errc::invalid_argument, "[memory]: " + shown(lower) + ", " + shown(higher) +
                                                " on this box: it must be higher");
}

}  // namespace

Result<budget::LevelFloors> memory_floors(const MemoryConfig& config, int64_t mem_total_bytes) {
  budget::LevelFloors floors = budget::floors_for(mem_total_bytes);
  const auto set = [](int64_t wanted, int64_t& enter, int64_t& leave, int64_t percent) {
    if (wanted == 0) return;
    enter = wanted;
    leave = wanted / 100 * percent;
    if (leave <= enter) leave = enter + enter * (percent - 100) / 100;
  };
  set(config.yellow_bytes, floors.yellow_enter, floors.yellow_leave, 120);
  set(config.orange_bytes, floors.orange_enter, floors.orange_leave, 133);
  set(config.red_bytes, floors.red_enter, floors.red_leave, 175);
  if (config.black_bytes != 0) floors.black_enter = config.black_bytes;
  floors.black_leave = floors.red_enter;
  if (config.floor_bytes != 0) floors.yellow_leave = config.floor_bytes;
  // Above the performance floor nothing is held any more: a way out beyond it may lie beyond the box.
  floors.orange_leave = std::min(floors.orange_leave, floors.yellow_leave);
  floors.red_leave = std::min(floors.red_leave, floors.yellow_leave);
  floors.calm_ms = config.calm.count();
  TRY(in_order({"black", floors.black_enter}, {"red", floors.red_enter}, false));
  TRY(in_order({"red", floors.red_enter}, {"orange", floors.orange_enter}, false));
  TRY(in_order({"orange", floors.orange_enter}, {"yellow", floors.yellow_enter}, false));
  TRY(in_order({"yellow", floors.yellow_enter}, {"floor", floors.yellow_leave}, true));
  return floors;
}

}  // namespace tandem::service
