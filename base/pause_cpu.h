// Between two looks of a spinning thread: lets the core's other thread work meanwhile.
#pragma once

namespace tandem {

inline void pause_cpu() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tandem
