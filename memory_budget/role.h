// The two roles of a box. Everybody uses the default model; the optional one is what is shed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::budget {

enum class Role : uint8_t { default_model, optional_model };
inline constexpr size_t kRoleCount = 2;

constexpr size_t role_index(Role role) { return static_cast<size_t>(role); }

constexpr const char* role_name(Role role) {
  return role == Role::default_model ? "default" : "optional";
}

}  // namespace tandem::budget
