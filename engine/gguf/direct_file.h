// One regular file that is read into anonymous memory past the page cache (O_DIRECT), so that a load
// leaves no second copy of the weights behind and nobody who truncates the file later can end the
// process. Where the file system refuses direct I/O the reads are buffered and their pages are given
// up at once; how() tells. The memory has the file's layout, is aligned for huge pages, and only the parts
// that were read are resident. Move-only; reading by one thread (which uses helpers), then any thread.
//
// Errors: io; unavailable when the file ends before the size that it had when it was opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "engine/gguf/regular_file.h"

namespace tandem::engine {

class DirectFile {
 public:
  // Opens and sets addresses aside; reads one block to see whether direct I/O works. try_direct: false
  // reads as on a file system that refuses it.
  [[nodiscard]] static Result<DirectFile> open(const std::string& path, bool follow_links,
                                               bool try_direct = true);

  DirectFile(DirectFile&& other) noexcept;
  DirectFile& operator=(DirectFile&& other) noexcept;
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;
  ~DirectFile();

  // All of the file; what was not read yet is zero.
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {address_, static_cast<size_t>(file_.size)};
  }
  [[nodiscard]] const std::string& path() const { return file_.path; }
  [[nodiscard]] bool unchanged() const { return file_.unchanged(); }
  // Bytes from the start that are there.
  [[nodiscard]] uint64_t prefix() const { return prefix_; }

  // Makes at least the first `bytes` of the file (cut at its size) be there.
  Result<void> read_prefix(uint64_t bytes);
  // Reads everything that is not there yet, several blocks at a time; the memory is read-only then.
  Result<void> read_all();
  // Some bytes, without keeping them.
  Result<void> read_at(uint64_t offset, std::span<std::byte> out) const;

  [[nodiscard]] bool direct() const { return direct_; }
  [[nodiscard]] const char* how() const;

 private:
  DirectFile() = default;
  Result<void> try_direct_reads();
  // offset and bytes are multiples of the alignment, except where the file ends.
  Result<void> read_range(uint64_t offset, uint64_t bytes, std::byte* to) const;
  void unmap() noexcept;

  RegularFile file_;
  std::byte* address_ = nullptr;
  uint64_t mapped_bytes_ = 0;
  uint64_t prefix_ = 0;
  bool direct_ = false;
};

}  // namespace tandem::engine
