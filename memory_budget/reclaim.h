// What tandem-reclaim does, in this order: sync, drop clean caches (page cache, dentries and inodes),
// compact memory (rule U6.5). Once; whoever calls decides when. Blocking, for seconds on a full cache.
// `root` is the directory that holds proc/sys/vm, empty for this host.
// Error: io, with the file that could not be written; the steps before it are done.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::budget {

Result<void> reclaim_once(const std::string& root);

// How its end is told over a socket: one line, and the connection ends.
std::string reclaim_answer(const Result<void>& done);
// The other side of it. Errors: io, with what failed; corrupt for anything else than such a line, also for
// one that was cut.
Result<void> read_reclaim_answer(std::string_view text);
inline constexpr size_t kReclaimAnswerMax = 1024;

}  // namespace tandem::budget
