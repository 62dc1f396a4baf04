// A process pinned by a descriptor: unlike its number it never comes to mean another process, and it can be
// polled for the end. By the call's number, since its wrapper came to glibc late (2.36). Any thread;
// async-signal-safe.
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/fd.h"

namespace tandem {

// Invalid, with errno, when there is no such process.
inline Fd open_pidfd(pid_t pid) noexcept { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

}  // namespace tandem
