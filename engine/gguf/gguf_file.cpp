#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "engine/gguf/gguf.h"
#include "engine/gguf/gguf_internal.h"
#include "engine/gguf/model_part.h"

namespace tandem::engine {
namespace {

constexpr size_t kSampleBytes = 4096;
constexpr size_t kSamplesMax = 64;

// Two lanes of multiply and rotate: fast, well mixed, not cryptographic.
class IdentityHash {
 public:
  void add(std::span<const std::byte> bytes) {
    add_word(bytes.size());
    size_t i = 0;
    for (; i + 8 <= bytes.size(); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i, 8);
      add_word(word);
    }
    uint64_t rest = 0;
    if (i < bytes.size()) std::memcpy(&rest, bytes.data() + i, bytes.size() - i);
    add_word(rest);
  }

  void add_word(uint64_t word) {
    a_ = std::rotl((a_ ^ word) * 0x9E3779B97F4A7C15u, 29);
    b_ = std::rotl((b_ + word) * 0xC2B2AE3D27D4EB4Fu, 31) ^ a_;
  }

  [[nodiscard]] std::string hex() const {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string out;
    for (const uint64_t lane : {finish(a_ + b_), finish(b_ ^ std::rotl(a_, 32))}) {
      for (int shift = 60; shift >= 0; shift -= 4) out += kDigits[(lane >> shift) & 15];
    }
    return out;
  }

 private:
  static uint64_t finish(uint64_t x) {
    x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
    x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
    return x ^ (x >> 32);
  }

  uint64_t a_ = 0x243F6A8885A308D3u;
  uint64_t b_ = 0x13198A2E03707344u;
};

// sample(offset, count): bytes of the file as a Result.
template <typename Sample>
Result<void> hash_part(IdentityHash& hash, std::span<const std::byte> bytes, uint64_t header_bytes,
                       Sample sample) {
  hash.add_word(bytes.size());
  hash.add(bytes.first(static_cast<size_t>(header_bytes)));
  const uint64_t data_bytes = bytes.size() - header_bytes;
  if (data_bytes <= kSamplesMax * kSampleBytes) {
    TRY_ASSIGN(const std::span<const std::byte> data, sample(header_bytes, data_bytes));
    hash.add(data);
    return {};
  }
  const uint64_t last = data_bytes - kSampleBytes;
  for (size_t i = 0; i < kSamplesMax; ++i) {
    TRY_ASSIGN(const std::span<const std::byte> data,
               sample(header_bytes + last / (kSamplesMax - 1) * i, kSampleBytes));
    hash.add(data);
  }
  return {};
}

struct SplitInfo {
  int64_t no = 0;
  int64_t count = 1;
  int64_t tensors = -1;  // -1: not told
};

Result<SplitInfo> read_split_info(const GgufMetadata& metadata, const GgufLimits& limits) {
  const auto parts_max = static_cast<int64_t>(limits.parts_max);
  SplitInfo split;
  // Writers store a count of 0 in files that are not split.
  TRY_ASSIGN(split.count, metadata.get_int_or("split.count", 1, {.min = 0, .max = parts_max}));
  split.count = std::max<int64_t>(split.count, 1);
  TRY_ASSIGN(split.no, metadata.get_int_or("split.no", 0, {.min = 0, .max = split.count - 1}));
  TRY_ASSIGN(split.tensors, metadata.get_int_or("split.tensors.count", -1, {.min = 0}));
  if (split.count > 1 && split.tensors < 0) {
    return make_error(Errc::corrupt, "key split.tensors.count is missing in a split model");
  }
  return split;
}

std::string part_suffix(int64_t no, int64_t count) {
  const auto padded = [](int64_t value) {
    std::string digits = std::to_string(value);
    if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
    return digits;
  };
  return "-" + padded(no + 1) + "-of-" + padded(count) + ".gguf";
}

}  // namespace

struct GgufFile::State {
  std::vector<std::byte> memory;  // of from_bytes()
  std::vector<ModelPart> files;
  std::vector<GgufImage> images;
  std::vector<GgufTensor> tensors;
  std::vector<uint32_t> by_name;  // indices into tensors, sorted
  LoadMode mode = LoadMode::mapped;
  std::string path;
  std::string identity;
  uint64_t file_bytes = 0;
  uint64_t tensor_bytes = 0;

  Result<void> add_file(const std::string& name, const GgufOpenOptions& options);
  Result<void> add_part(Result<GgufImage> image, uint64_t bytes, const std::string& name,
                        const GgufLimits& limits);
  Result<void> hash_parts();
  Result<void> open_other_parts(const std::string& first_path, const SplitInfo& split,
                                const GgufOpenOptions& options);
  Result<void> finish(const SplitInfo& split);
};

Result<void> GgufFile::State::add_file(const std::string& name, const GgufOpenOptions& options) {
  TRY_ASSIGN(ModelPart file, ModelPart::open(name, options));
  TRY(add_part(file.parse(options.limits), file.bytes().size(), file.path(), options.limits));
  files.push_back(std::move(file));
  return {};
}

Result<void> GgufFile::State::add_part(Result<GgufImage> image, uint64_t bytes,
                                       const std::string& name, const GgufLimits& limits) {
  if (!image.ok()) {
    Error error = std::move(image).error();
    error.message = name + ": " + error.message;
    return error;
  }
  const auto part = image->tensors();
  if (tensors.size() + part.size() > limits.tensors_max) {
    return make_error(Errc::too_large, name + ": all parts together have more than " +
                                           std::to_string(limits.tensors_max) + " tensors");
  }
  tensors.insert(tensors.end(), part.begin(), part.end());
  file_bytes += bytes;
  images.push_back(std::move(image).value());
  return {};
}

Result<void> GgufFile::State::open_other_parts(const std::string& first_path,
                                               const SplitInfo& split,
                                               const GgufOpenOptions& options) {
  const std::string suffix = part_suffix(0, split.count);
  if (!first_path.ends_with(suffix)) {
    return make_error(Errc::invalid_argument, "the name of the first part of a split model of " +
                                                  std::to_string(split.count) +
                                                  " parts must end in " + suffix + ": " +
                                                  first_path);
  }
  const std::string stem = first_path.substr(0, first_path.size() - suffix.size());
  for (int64_t no = 1; no < split.count; ++no) {
    const std::string name = stem + part_suffix(no, split.count);
    TRY(add_file(name, options));
    TRY_ASSIGN(const SplitInfo other, read_split_info(images.back().metadata(), options.limits));
    if (other.no != no || other.count != split.count || other.tensors != split.tensors) {
      return make_error(Errc::corrupt,
                        name + " says part " + std::to_string(other.no + 1) + " of " +
                            std::to_string(other.count) + " with " +
                            std::to_string(other.tensors) + " tensors, expected part " +
                            std::to_string(no + 1) + " of " + std::to_string(split.count) +
                            " with " + std::to_string(split.tensors));
    }
  }
  return {};
}

Result<void> GgufFile::State::finish(const SplitInfo& split) {
  if (split.tensors >= 0 && static_cast<uint64_t>(split.tensors) != tensors.size()) {
    return make_error(Errc::corrupt, "split.tensors.count is " + std::to_string(split.tensors) +
                                         ", the parts have " + std::to_string(tensors.size()) +
                                         " tensors");
  }
  TRY(check_unique_tensor_names(tensors));
  by_name.resize(tensors.size());
  std::iota(by_name.begin(), by_name.end(), 0u);
  std::sort(by_name.begin(), by_name.end(),
            [this](uint32_t a, uint32_t b) { return tensors[a].name < tensors[b].name; });
  for (const GgufTensor& tensor : tensors) tensor_bytes += tensor.byte_count;
  return hash_parts();
}

Result<void> GgufFile::State::hash_parts() {
  IdentityHash hash;
  if (files.empty()) {
    TRY(hash_part(hash, memory, images[0].header_bytes(), [&](uint64_t offset, uint64_t count) {
      return Result(std::span<const std::byte>(memory).subspan(offset, count));
    }));
  }
  for (size_t i = 0; i < files.size(); ++i) {
    ModelPart& file = files[i];
    file.set_sampling(true);
    const auto hashed =
        hash_part(hash, file.bytes(), images[i].header_bytes(),
                  [&](uint64_t offset, uint64_t count) { return file.sample(offset, count); });
    file.set_sampling(false);
    TRY(hashed);
  }
  identity = hash.hex();
  return {};
}

Result<GgufFile> GgufFile::open(const std::string& path, const GgufOpenOptions& options) {
  auto state = std::make_unique<State>();
  TRY(state->add_file(path, options));
  state->mode = options.load;
  state->path = state->files[0].path();
  TRY_ASSIGN(const SplitInfo split,
             read_split_info(state->images[0].metadata(), options.limits));
  if (split.no != 0) {
    return make_error(Errc::invalid_argument,
                      path + " is part " + std::to_string(split.no + 1) + " of " +
                          std::to_string(split.count) + ": name the first part");
  }
  // The given path, not the resolved one: in a cache of content-named files only the links have the
  // names of the parts.
  if (split.count > 1) TRY(state->open_other_parts(path, split, options));
  TRY(state->finish(split));
  return GgufFile(std::move(state));
}

Result<GgufFile> GgufFile::from_bytes(std::vector<std::byte> bytes, const GgufLimits& limits) {
  auto state = std::make_unique<State>();
  state->memory = std::move(bytes);
  state->path = "(memory)";
  TRY(state->add_part(GgufImage::parse(state->memory, limits), state->memory.size(), state->path,
                      limits));
  TRY_ASSIGN(const SplitInfo split, read_split_info(state->images[0].metadata(), limits));
  if (split.count > 1) {
    return make_error(Errc::invalid_argument, "a split model cannot be read from memory");
  }
  TRY(state->finish(split));
  return GgufFile(std::move(state));
}

GgufFile::GgufFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

Result<void> GgufFile::read_tensors() {
  for (ModelPart& file : state_->files) TRY(file.read_tensors());
  return {};
}

LoadMode GgufFile::load_mode() const { return state_->mode; }

std::string GgufFile::load_note() const {
  return state_->files.empty() ? "memory" : state_->files[0].load_note();
}

const GgufMetadata& GgufFile::metadata() const { return state_->images[0].metadata(); }

std::span<const GgufTensor> GgufFile::tensors() const { return state_->tensors; }

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto& tensors = state_->tensors;
  const auto found = std::lower_bound(
      state_->by_name.begin(), state_->by_name.end(), name,
      [&](uint32_t index, std::string_view wanted) { return tensors[index].name < wanted; });
  if (found == state_->by_name.end() || tensors[*found].name != name) return nullptr;
  return &tensors[*found];
}

Result<const GgufTensor*> GgufFile::tensor(std::string_view name) const {
  const GgufTensor* found = find_tensor(name);
  if (found != nullptr) return found;
  return make_error(Errc::not_found, "tensor " + printable_name(name) + " is missing");
}

uint64_t GgufFile::file_bytes() const { return state_->file_bytes; }
uint64_t GgufFile::tensor_bytes() const { return state_->tensor_bytes; }
size_t GgufFile::part_count() const { return state_->images.size(); }
const std::string& GgufFile::path() const { return state_->path; }
const std::string& GgufFile::identity() const { return state_->identity; }

Result<void> GgufFile::check_unchanged() const {
  for (const ModelPart& file : state_->files) {
    if (!file.unchanged()) {
      return make_error(Errc::unavailable, file.path() + " was changed while it was open");
    }
  }
  return {};
}

}  // namespace tandem::engine
