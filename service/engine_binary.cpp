#include "service/engine_binary.h"

#include <unistd.h>

#include <filesystem>

namespace tandem::service {

std::string binary_beside_us(const std::string& name) {
  std::error_code code;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", code);
  const auto beside = self.parent_path() / name;
  if (::access(beside.c_str(), X_OK) == 0) return beside.string();
  const auto installed = self.parent_path().parent_path() / "lib/tandem" / name;
  return ::access(installed.c_str(), X_OK) == 0 ? installed.string() : beside.string();
}

std::string engine_binary_beside_us() { return binary_beside_us("tandem-engine"); }

}  // namespace tandem::service
