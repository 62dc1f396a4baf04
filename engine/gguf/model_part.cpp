#include "engine/gguf/model_part.h"

#include <sys/vfs.h>

#include <utility>

namespace tandem::engine {
namespace {

constexpr uint64_t kFirstPrefixBytes = uint64_t{4} << 20;
// No vocabulary comes near; a header that is read has to be held, so a crafted one must not be endless.
constexpr uint64_t kHeaderBytesMax = uint64_t{1} << 30;

// What was not read is zero, and a parse that has not looked there has not been misled by it.
Result<GgufImage> parse_growing(DirectFile& file, const GgufLimits& limits) {
  for (uint64_t wanted = kFirstPrefixBytes;; wanted *= 4) {
    if (wanted > kHeaderBytesMax) {
      return make_error(Errc::too_large,
                        "the header is larger than " + std::to_string(kHeaderBytesMax) + " bytes");
    }
    TRY(file.read_prefix(wanted));
    uint64_t reached = 0;
    auto image = GgufImage::parse(file.bytes(), limits, &reached);
    if (reached > file.prefix()) continue;
    if (image.ok()) TRY(file.read_prefix(image->header_bytes()));  // its padding too
    return image;
  }
}

constexpr int64_t kTmpfs = 0x01021994;  // linux/magic.h
constexpr int64_t kRamfs = 0x858458F6;

}  // namespace

LoadMode preferred_load_mode(const std::string& path) {
  struct statfs info {};
  if (::statfs(path.c_str(), &info) != 0) return LoadMode::direct;  // opening tells why
  const auto type = static_cast<int64_t>(static_cast<uint32_t>(info.f_type));
  return type == kTmpfs || type == kRamfs ? LoadMode::mapped : LoadMode::direct;
}

Result<ModelPart> ModelPart::open(const std::string& path, const GgufOpenOptions& options) {
  if (options.load == LoadMode::direct) {
    TRY_ASSIGN(DirectFile file, DirectFile::open(path, options.follow_links));
    return ModelPart(std::move(file));
  }
  TRY_ASSIGN(MappedFile file, MappedFile::open(path, options.follow_links));
  return ModelPart(std::move(file));
}

std::span<const std::byte> ModelPart::bytes() const {
  return std::visit([](const auto& file) { return file.bytes(); }, file_);
}

const std::string& ModelPart::path() const {
  return std::visit([](const auto& file) -> const std::string& { return file.path(); }, file_);
}

bool ModelPart::unchanged() const {
  return std::visit([](const auto& file) { return file.unchanged(); }, file_);
}

Result<GgufImage> ModelPart::parse(const GgufLimits& limits) {
  if (auto* direct = std::get_if<DirectFile>(&file_)) return parse_growing(*direct, limits);
  return GgufImage::parse(bytes(), limits);
}

Result<std::span<const std::byte>> ModelPart::sample(uint64_t offset, uint64_t count) {
  const auto* direct = std::get_if<DirectFile>(&file_);
  if (direct == nullptr) {
    return bytes().subspan(static_cast<size_t>(offset), static_cast<size_t>(count));
  }
  sample_.resize(static_cast<size_t>(count));
  TRY(direct->read_at(offset, sample_));
  return std::span<const std::byte>(sample_);
}

void ModelPart::set_sampling(bool on) const {
  if (const auto* mapped = std::get_if<MappedFile>(&file_)) mapped->set_sampling(on);
}

Result<void> ModelPart::read_tensors() {
  if (auto* direct = std::get_if<DirectFile>(&file_)) return direct->read_all();
  return {};
}

std::string ModelPart::load_note() const {
  if (const auto* direct = std::get_if<DirectFile>(&file_)) return direct->how();
  return "mapped";
}

}  // namespace tandem::engine
