// Resident memory of this process from /proc/self/status; zeros where the kernel does not tell.
#pragma once

#include <cstdint>

namespace tandem::engine {

struct ProcessMemory {
  int64_t resident_bytes = 0;   // VmRSS: anonymous, mapped files and shared memory
  int64_t anonymous_bytes = 0;  // RssAnon
};

ProcessMemory read_process_memory();

}  // namespace tandem::engine
