// Small files that are written whole or not at all (temporary name, fsync, rename), and read with a
// cap. Any thread. Errors: io, not_found, too_large; they name the path.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::service {

Result<void> write_file_atomically(const std::string& path, std::string_view text, mode_t mode);
Result<std::string> read_small_file(const std::string& path, size_t bytes_max);

// Creates the directory with its parents; an existing one is left as it is.
Result<void> make_directory(const std::string& path, mode_t mode);

}  // namespace tandem::service
