// What tandem-reclaim does, in this order: sync, drop clean caches (page cache, dentries and inodes),
// compact memory (rule U6.5). Once; whoever calls decides when. Blocking, for seconds on a full cache.
// `root` is the directory that holds proc/sys/vm, empty for this host.
// Error: io, with the file that could not be written; the steps before it are done.
#pragma once

#include <string>

#include "base/result.h"

namespace tandem::budget {

Result<void> reclaim_once(const std::string& root);

}  // namespace tandem::budget
