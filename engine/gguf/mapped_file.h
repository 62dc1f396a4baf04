// One regular file, held open and mapped read-only. Move-only; the bytes are valid as long as the
// object lives and nobody truncates the file (unchanged() tells). Any thread may read. Errors: io.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace tandem::engine {

class MappedFile {
 public:
  // follow_links: the path is resolved once (realpath) and the result opened; otherwise a link as the
  // last component is refused. In both cases the open itself follows no final link, never blocks on a
  // pipe, and takes nothing but a regular file.
  [[nodiscard]] static Result<MappedFile> open(const std::string& path, bool follow_links);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(address_), size_};
  }
  [[nodiscard]] const std::string& path() const { return path_; }  // resolved
  // True switches the kernel's read-ahead around faults off, for sampling of single pages: with it on,
  // each sample of a cold file reads up to megabytes. False restores the default.
  void set_sampling(bool on) const noexcept;
  // False when size or modification time are no longer those of the mapping.
  [[nodiscard]] bool unchanged() const;

 private:
  MappedFile() = default;
  void unmap() noexcept;

  Fd fd_;
  std::string path_;
  void* address_ = nullptr;
  size_t size_ = 0;
  int64_t modified_ns_ = 0;
};

}  // namespace tandem::engine
