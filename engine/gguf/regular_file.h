// Opens one regular file for reading, the way both loaders want it. Any thread. Errors: io (cannot be
// opened, is no regular file), corrupt (empty).
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace tandem::engine {

struct RegularFile {
  Fd fd;
  std::string path;  // resolved
  uint64_t size = 0;
  int64_t modified_ns = 0;

  // follow_links: the path is resolved once (realpath) and the result opened; otherwise a link as the
  // last component is refused. In both cases the open itself follows no final link, never blocks on a
  // pipe, and takes nothing but a regular file.
  [[nodiscard]] static Result<RegularFile> open(const std::string& path, bool follow_links);
  // False when size or modification time are no longer those of the opening.
  [[nodiscard]] bool unchanged() const;
};

}  // namespace tandem::engine
