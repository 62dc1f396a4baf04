#include "engine/run/process_memory.h"

#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

namespace tandem::engine {
namespace {

// "VmRSS:\t   12345 kB"
int64_t bytes_of(std::string_view line) {
  const size_t digit = line.find_first_of("0123456789");
  int64_t kib = 0;
  if (digit == std::string_view::npos) return 0;
  const auto [end, code] = std::from_chars(line.data() + digit, line.data() + line.size(), kib);
  return code == std::errc() ? kib * 1024 : 0;
}

}  // namespace

ProcessMemory read_process_memory() {
  ProcessMemory memory;
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmRSS:")) memory.resident_bytes = bytes_of(line);
    if (line.starts_with("RssAnon:")) memory.anonymous_bytes = bytes_of(line);
  }
  return memory;
}

}  // namespace tandem::engine
