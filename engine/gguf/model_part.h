// One file of a model, whichever way its bytes come. For this folder only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "engine/gguf/direct_file.h"
#include "engine/gguf/gguf.h"
#include "engine/gguf/mapped_file.h"

namespace tandem::engine {

class ModelPart {
 public:
  static Result<ModelPart> open(const std::string& path, const GgufOpenOptions& options);

  [[nodiscard]] std::span<const std::byte> bytes() const;
  [[nodiscard]] const std::string& path() const;
  [[nodiscard]] bool unchanged() const;
  // Brings in as much of the file as its header needs.
  Result<GgufImage> parse(const GgufLimits& limits);
  // Some bytes behind the header, for sampling. The span lives until the next call.
  Result<std::span<const std::byte>> sample(uint64_t offset, uint64_t count);
  void set_sampling(bool on) const;

  Result<void> read_tensors();
  [[nodiscard]] std::string load_note() const;

 private:
  explicit ModelPart(std::variant<MappedFile, DirectFile> file) : file_(std::move(file)) {}

  std::variant<MappedFile, DirectFile> file_;
  std::vector<std::byte> sample_;
};

}  // namespace tandem::engine
