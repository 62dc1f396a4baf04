// One regular file, held open and mapped read-only. Move-only; the bytes are valid as long as the
// object lives and nobody truncates the file (unchanged() tells). Any thread may read. Errors: io.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "engine/gguf/regular_file.h"

namespace tandem::engine {

class MappedFile {
 public:
  // Links as in RegularFile::open.
  [[nodiscard]] static Result<MappedFile> open(const std::string& path, bool follow_links);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(address_), size_};
  }
  [[nodiscard]] const std::string& path() const { return file_.path; }  // resolved
  // True switches the kernel's read-ahead around faults off, for sampling of single pages: with it on,
  // each sample of a cold file reads up to megabytes. False restores the default.
  void set_sampling(bool on) const noexcept;
  // False when size or modification time are no longer those of the mapping.
  [[nodiscard]] bool unchanged() const { return file_.unchanged(); }

 private:
  MappedFile() = default;
  void unmap() noexcept;

  RegularFile file_;
  void* address_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tandem::engine
