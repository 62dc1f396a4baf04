// Reader of GGUF v3 model files. The files are untrusted: every count, string, shape and offset is
// checked against the bytes that are there before anything is allocated or touched, and the result is
// immutable. docs/formats/gguf.md lists what is accepted and what is refused.
//
// GgufImage is the parse of one byte span (what the fuzzer drives); it owns tables, never the bytes.
// GgufFile owns the bytes of a model on disk, one or several parts, and gives one table of tensors over
// all of them. The bytes are read-only mappings, or memory that was read past the page cache (LoadMode);
// then tensors read as zero until read_tensors(). Views (names, strings, tensor bytes) live as long as
// the GgufFile. After open() everything is const and may be read from any thread.
//
// Errors: io (cannot open, not a regular file), corrupt (breaks the format), too_large (a limit below),
// invalid_argument (not the first part of a split model).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/gguf/ggml_type.h"
#include "engine/gguf/gguf_metadata.h"

namespace tandem::engine {

// Caps that no honest file reaches; with them a header can ask for at most a few dozen MB of tables.
struct GgufLimits {
  uint64_t tensors_max = 1u << 16;
  uint64_t keys_max = 1u << 16;
  uint64_t key_bytes_max = (1u << 16) - 1;
  uint64_t string_bytes_max = 1u << 24;
  uint64_t array_elements_max = 1u << 24;
  uint64_t alignment_max = 1u << 16;
  uint64_t parts_max = 1000;
  // For reading metadata only: tensors whose data the file does not have (a download that has just
  // begun) have a byte_count and no bytes. Such a file must not be loaded.
  bool data_may_be_absent = false;
};

struct GgufTensor {
  std::string_view name;  // 1 to 63 bytes, valid UTF-8, unique in the model
  GgmlType type = GgmlType::kF32;
  uint32_t dim_count = 1;                    // 1 to 4
  std::array<uint64_t, 4> dims{1, 1, 1, 1};  // dims[0] is contiguous; [in, out] of a linear layer
  std::span<const std::byte> bytes;          // exactly the tensor's data; starts 32-aligned in files
                                             // of the default alignment, at least 8-aligned always
  uint64_t byte_count = 0;                   // of the data, absent or not

  // Product of the dims; the parser made sure that it and the byte size fit.
  [[nodiscard]] uint64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  [[nodiscard]] uint64_t rows() const { return dims[1] * dims[2] * dims[3]; }
  [[nodiscard]] uint64_t row_bytes() const { return bytes.size() / rows(); }
  // "blk.0.attn_q.weight Q4_K [896, 896]": for messages.
  [[nodiscard]] std::string describe() const;
};

class GgufImage {
 public:
  // `bytes` is one whole file and outlives the result. `reached`, if given: how far it was looked at, also
  // when the parse fails; bytes behind it did not matter.
  [[nodiscard]] static Result<GgufImage> parse(std::span<const std::byte> bytes,
                                               const GgufLimits& limits = {},
                                               uint64_t* reached = nullptr);

  [[nodiscard]] const GgufMetadata& metadata() const { return metadata_; }
  [[nodiscard]] std::span<const GgufTensor> tensors() const { return tensors_; }  // file order
  // Bytes before the tensor data, padding included.
  [[nodiscard]] uint64_t header_bytes() const { return header_bytes_; }

 private:
  template <typename Parser>
  static Result<GgufImage> parse_with(Parser& parser);

  GgufMetadata metadata_;
  std::vector<GgufTensor> tensors_;
  uint64_t header_bytes_ = 0;
};

enum class LoadMode : uint8_t {
  mapped,  // pages of the file, which the kernel brings in and may take back
  direct,  // anonymous memory, read past the page cache (direct_file.h)
};

// direct, but for files that lie in memory already (tmpfs, ramfs): reading those would double them.
LoadMode preferred_load_mode(const std::string& path);

struct GgufOpenOptions {
  // Administrators link models, so links are resolved once, deliberately (realpath), and the resolved
  // file is then opened without following anything. False refuses a path whose last component is a
  // link: for folders that others can write.
  bool follow_links = true;
  GgufLimits limits = {};
  LoadMode load = LoadMode::mapped;
};

class GgufFile {
 public:
  // Opens, maps and checks a model: `path` is the only file, or part 1 of a split model
  // ("name-00001-of-0000N.gguf"; the other parts lie beside it). Touches the header and a few sampled
  // pages only, so that a 15 GB file opens at once.
  [[nodiscard]] static Result<GgufFile> open(const std::string& path,
                                             const GgufOpenOptions& options = {});
  // A model in memory, for tests.
  [[nodiscard]] static Result<GgufFile> from_bytes(std::vector<std::byte> bytes,
                                                   const GgufLimits& limits = {});

  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  // Makes the data of all tensors be there; nothing to do for a mapped model. Errors: io, unavailable (the
  // file became shorter while it was read).
  Result<void> read_tensors();
  [[nodiscard]] LoadMode load_mode() const;
  // How the bytes come, for the log.
  [[nodiscard]] std::string load_note() const;

  [[nodiscard]] const GgufMetadata& metadata() const;           // of the first part
  [[nodiscard]] std::span<const GgufTensor> tensors() const;    // all parts, in part and file order
  [[nodiscard]] const GgufTensor* find_tensor(std::string_view name) const;  // null when missing
  [[nodiscard]] Result<const GgufTensor*> tensor(std::string_view name) const;  // not_found

  [[nodiscard]] uint64_t file_bytes() const;    // sum over the parts
  [[nodiscard]] uint64_t tensor_bytes() const;  // sum over the tensors, without padding
  [[nodiscard]] size_t part_count() const;
  [[nodiscard]] const std::string& path() const;  // resolved path of the first part

  // Identity of the weights, 32 hex digits: header, sizes and up to 64 evenly spaced 4 KiB samples of
  // the data of each part. Cheap at start, independent of path and times; tells models and versions
  // apart, but is no proof against someone who crafts a collision.
  [[nodiscard]] const std::string& identity() const;

  // Error (unavailable) when a part's size or modification time is no longer what was opened: a file
  // that is truncated under a mapping would end the process with SIGBUS.
  [[nodiscard]] Result<void> check_unchanged() const;

 private:
  struct State;
  explicit GgufFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tandem::engine
