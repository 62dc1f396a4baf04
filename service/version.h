// The version, from the build (project() in CMakeLists.txt).
#pragma once

#include <string_view>

namespace tandem::service {

inline constexpr std::string_view kVersion = TANDEM_VERSION;

}  // namespace tandem::service
