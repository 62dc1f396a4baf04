#include "memory_budget/guard_floors.h"

namespace tandem::budget {

GuardFloors page_floors(const LevelFloors& f) noexcept {
  return {.yellow_enter = f.yellow_enter, .yellow_leave = f.yellow_leave,
          .orange_enter = f.orange_enter, .orange_leave = f.orange_leave,
          .red_enter = f.red_enter, .red_leave = f.red_leave,
          .black_enter = f.black_enter, .fall_rate_per_s = f.fall_rate_per_s,
          .calm_ms = f.calm_ms};
}

LevelFloors floors_of_page(const GuardFloors& told, int64_t mem_total_bytes) noexcept {
  LevelFloors f = floors_for(mem_total_bytes);
  if (told.yellow_enter == 0) return f;
  f.yellow_enter = told.yellow_enter;
  f.yellow_leave = told.yellow_leave;
  f.orange_enter = told.orange_enter;
  f.orange_leave = told.orange_leave;
  f.red_enter = told.red_enter;
  f.red_leave = told.red_leave;
  f.black_enter = told.black_enter;
  f.black_leave = told.red_enter;
  f.fall_rate_per_s = told.fall_rate_per_s;
  f.calm_ms = told.calm_ms;
  return f;
}

}  // namespace tandem::budget
