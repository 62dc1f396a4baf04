// A management library for tests: answers as an integrated part does (memory not supported, processes
// known), or as environment variable FAKE_NVML says: broken (does not start), none (no device),
// total=BYTES, many (more processes than asked for), list=FILE (processes as in FILE: "PID BYTES" lines).
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace {
std::string mode() {
  const char* text = std::getenv("FAKE_NVML");
  return text == nullptr ? "" : text;
}
}  // namespace

extern "C" {
unsigned nvmlInit_v2() { return mode() == "broken" ? 9 : 0; }
unsigned nvmlShutdown() { return 0; }
unsigned nvmlDeviceGetCount_v2(unsigned* count) {
  *count = mode() == "none" ? 0 : 1;
  return 0;
}
unsigned nvmlDeviceGetHandleByIndex_v2(unsigned, void** device) {
  static int only = 0;
  *device = &only;
  return 0;
}
unsigned nvmlDeviceGetMemoryInfo(void*, unsigned long long* info) {
  const std::string text = mode();
  if (text.rfind("total=", 0) != 0) return 3;
  info[0] = std::strtoull(text.c_str() + 6, nullptr, 10);
  info[1] = info[2] = 0;
  return 0;
}
struct FakeProcess {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu;
  unsigned compute;
};
unsigned nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, FakeProcess* list) {
  if (mode().rfind("list=", 0) == 0) {
    std::ifstream file(mode().substr(5));
    unsigned found = 0;
    while (found < *count && file >> list[found].pid >> list[found].bytes) ++found;
    *count = found;
    return 0;
  }
  const unsigned wanted = mode() == "many" ? 200 : 2;
  if (*count < wanted) return 7;
  for (unsigned i = 0; i < wanted; ++i) list[i] = {100 + i, 1000ull + i, 0, 0};
  list[1].bytes = ~0ull;
  *count = wanted;
  return 0;
}
const char* nvmlErrorString(unsigned code) { return code == 3 ? "Not Supported" : "Unknown Error"; }
}
