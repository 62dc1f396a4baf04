// The order of checks: fixed header, counts against caps and bytes left, then each entry as it is
// read, then what concerns the whole file (unique names, offsets in sequence, data inside the file).
#include <algorithm>
#include <bit>
#include <optional>

#include "base/byte_reader.h"
#include "base/check.h"
#include "base/utf8.h"
#include "engine/gguf/gguf.h"
#include "engine/gguf/gguf_internal.h"

namespace tandem::engine {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kVersion = 3;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kAlignmentMin = 8;         // what loads of f64 and i64 tensors need
constexpr uint64_t kEntryBytesMin = 8 + 1 + 4 + 1;           // key of one byte, type, u8
constexpr uint64_t kTensorBytesMin = 8 + 1 + 4 + 8 + 4 + 8;  // name of one byte, one dim
constexpr uint64_t kTensorNameBytesMax = 63;
constexpr uint64_t kAbsentBytesMax = uint64_t{1} << 50;  // of one tensor, and of those before it

std::string number(uint64_t value) { return std::to_string(value); }

Error corrupt(std::string message) { return make_error(Errc::corrupt, std::move(message)); }

// A tensor as the table tells it; the data is looked at when the whole table is known.
struct TensorRecord {
  GgufTensor tensor;
  uint64_t offset = 0;
  uint64_t size = 0;
};

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const GgufLimits& limits)
      : bytes_(bytes), reader_(bytes), limits_(limits) {}

  Result<void> read_header();
  Result<GgufMetadata> read_metadata();
  Result<std::vector<GgufTensor>> read_tensors(const GgufMetadata& metadata);
  [[nodiscard]] uint64_t data_start() const { return data_start_; }
  [[nodiscard]] uint64_t reached() const { return reader_.position(); }

 private:
  Error truncated(const std::string& what) const {
    return corrupt("the file ends inside " + what + ": " + number(reader_.remaining()) +
                   " bytes left at byte " + number(reader_.position()));
  }

  Result<std::string_view> read_string(const std::string& what, uint64_t bytes_max);
  Result<GgufValue> read_value(std::string_view key);
  Result<GgufValue> read_array(std::string_view key);
  Result<void> skip_strings(std::string_view key, uint64_t count);
  Result<TensorRecord> read_tensor_record();
  Result<uint64_t> read_dims(GgufTensor& tensor);
  Result<void> place_tensors(std::vector<TensorRecord>& records, uint64_t alignment);

  std::span<const std::byte> bytes_;
  ByteReader reader_;
  const GgufLimits& limits_;
  uint64_t tensor_count_ = 0;
  uint64_t key_count_ = 0;
  uint64_t data_start_ = 0;
};

Result<void> Parser::read_header() {
  uint32_t magic = 0;
  uint32_t version = 0;
  if (!reader_.read(magic) || magic != kMagic) return corrupt("not a GGUF file: the magic differs");
  if (!reader_.read(version)) return truncated("the version");
  if (version != 0 && (version & 0xFFFFu) == 0) {
    return corrupt("the file is big-endian; only little-endian GGUF files are read");
  }
  if (version != kVersion) {
    return corrupt("GGUF version " + number(version) + " is not known, only version 3 is read");
  }
  if (!reader_.read(tensor_count_) || !reader_.read(key_count_)) return truncated("the counts");
  if (tensor_count_ > limits_.tensors_max) {
    return make_error(Errc::too_large, number(tensor_count_) + " tensors, the limit is " +
                                           number(limits_.tensors_max));
  }
  if (key_count_ > limits_.keys_max) {
    return make_error(Errc::too_large,
                      number(key_count_) + " keys, the limit is " + number(limits_.keys_max));
  }
  // The caps above keep this sum far from overflow.
  if (tensor_count_ * kTensorBytesMin + key_count_ * kEntryBytesMin > reader_.remaining()) {
    return corrupt("header announces " + number(key_count_) + " keys and " +
                   number(tensor_count_) + " tensors, only " + number(reader_.remaining()) +
                   " bytes follow");
  }
  return {};
}

Result<std::string_view> Parser::read_string(const std::string& what, uint64_t bytes_max) {
  uint64_t length = 0;
  std::span<const std::byte> text;
  if (!reader_.read(length)) return truncated(what);
  if (length > bytes_max) {
    return make_error(Errc::too_large, what + " has " + number(length) + " bytes, the limit is " +
                                           number(bytes_max));
  }
  if (!reader_.take(length, text)) return truncated(what);
  return std::string_view(reinterpret_cast<const char*>(text.data()), text.size());
}

Result<GgufMetadata> Parser::read_metadata() {
  std::vector<GgufMetadata::Entry> entries;
  entries.reserve(static_cast<size_t>(key_count_));
  for (uint64_t i = 0; i < key_count_; ++i) {
    TRY_ASSIGN(const std::string_view key,
               read_string("the name of key " + number(i), limits_.key_bytes_max));
    if (key.empty()) return corrupt("key " + number(i) + " has an empty name");
    if (!utf8::is_valid(key)) return corrupt("the name of key " + number(i) + " is not UTF-8");
    TRY_ASSIGN(const GgufValue value, read_value(key));
    entries.push_back({.key = key, .value = value});
  }
  GgufMetadata metadata(std::move(entries));
  const std::string_view duplicate = metadata.first_duplicate_key();
  if (!duplicate.empty()) return corrupt("key " + printable_name(duplicate) + " appears twice");
  return metadata;
}

Result<GgufValue> Parser::read_value(std::string_view key) {
  uint32_t id = 0;
  const std::string what = "key " + printable_name(key);
  if (!reader_.read(id)) return truncated(what);
  const auto type = static_cast<GgufValueType>(id);
  if (type == GgufValueType::array) return read_array(key);
  if (type == GgufValueType::string) {
    GgufValue value;
    value.type = type;
    TRY_ASSIGN(value.text, read_string(what, limits_.string_bytes_max));
    return value;
  }
  const size_t width = gguf_scalar_bytes(type);
  if (width == 0) return corrupt(what + " has the unknown value type " + number(id));
  std::span<const std::byte> scalar;
  if (!reader_.take(width, scalar)) return truncated(what);
  const GgufValue value = GgufValue::from_scalar(type, scalar.data());
  if (type == GgufValueType::boolean && !value.to_bool()) {
    return corrupt(what + " is a bool with the byte " + number(value.unsigned_integer));
  }
  return value;
}

Result<GgufValue> Parser::read_array(std::string_view key) {
  const std::string what = "key " + printable_name(key);
  uint32_t id = 0;
  uint64_t count = 0;
  if (!reader_.read(id) || !reader_.read(count)) return truncated(what);
  const auto type = static_cast<GgufValueType>(id);
  if (type == GgufValueType::array) return corrupt(what + " is an array of arrays");
  if (count > limits_.array_elements_max) {
    return make_error(Errc::too_large, what + " has " + number(count) +
                                           " elements, the limit is " +
                                           number(limits_.array_elements_max));
  }
  const size_t start = reader_.position();
  if (type == GgufValueType::string) {
    TRY(skip_strings(key, count));
  } else {
    const size_t width = gguf_scalar_bytes(type);
    if (width == 0) return corrupt(what + " has elements of the unknown type " + number(id));
    std::span<const std::byte> elements;
    // count is capped, so that the product cannot overflow.
    if (!reader_.take(count * width, elements)) return truncated(what);
  }
  GgufValue value;
  value.type = GgufValueType::array;
  value.array = GgufArray(type, static_cast<size_t>(count),
                          bytes_.subspan(start, reader_.position() - start));
  return value;
}

Result<void> Parser::skip_strings(std::string_view key, uint64_t count) {
  if (count * sizeof(uint64_t) > reader_.remaining()) return truncated("key " + printable_name(key));
  const std::string what = "an element of key " + printable_name(key);
  for (uint64_t i = 0; i < count; ++i) {
    TRY_ASSIGN([[maybe_unused]] const std::string_view element,
               read_string(what, limits_.string_bytes_max));
  }
  return {};
}

// Gives the number of elements.
Result<uint64_t> Parser::read_dims(GgufTensor& tensor) {
  const std::string what = "tensor " + printable_name(tensor.name);
  if (!reader_.read(tensor.dim_count)) return truncated(what);
  if (tensor.dim_count < 1 || tensor.dim_count > tensor.dims.size()) {
    return corrupt(what + " has " + number(tensor.dim_count) + " dimensions, allowed are 1 to 4");
  }
  constexpr auto kElementsMax = static_cast<uint64_t>(INT64_MAX);
  uint64_t elements = 1;
  for (uint32_t d = 0; d < tensor.dim_count; ++d) {
    if (!reader_.read(tensor.dims[d])) return truncated(what);
    if (tensor.dims[d] == 0) return corrupt(what + " has a dimension of 0");
    if (tensor.dims[d] > kElementsMax / elements) {
      return corrupt(what + " has more than 2^63 elements");
    }
    elements *= tensor.dims[d];
  }
  return elements;
}

Result<TensorRecord> Parser::read_tensor_record() {
  TensorRecord record;
  GgufTensor& tensor = record.tensor;
  TRY_ASSIGN(tensor.name, read_string("a tensor name", kTensorNameBytesMax));
  if (tensor.name.empty()) return corrupt("a tensor has an empty name");
  if (!utf8::is_valid(tensor.name)) return corrupt("a tensor name is not UTF-8");
  const std::string what = "tensor " + printable_name(tensor.name);
  TRY_ASSIGN(const uint64_t elements, read_dims(tensor));
  uint32_t id = 0;
  if (!reader_.read(id) || !reader_.read(record.offset)) return truncated(what);
  const GgmlTypeInfo* info = find_ggml_type(id);
  if (info == nullptr) return corrupt(what + " has the unknown type " + number(id));
  tensor.type = info->type;
  if (tensor.dims[0] % info->block_elements != 0) {
    return corrupt(what + " has rows of " + number(tensor.dims[0]) + " elements, blocks of " +
                   info->name + " have " + number(info->block_elements));
  }
  const uint64_t blocks = elements / info->block_elements;
  const uint64_t bytes_max = limits_.data_may_be_absent ? kAbsentBytesMax : bytes_.size();
  if (blocks > bytes_max / info->block_bytes) {
    return corrupt(what + " is larger than the file of " + number(bytes_.size()) + " bytes");
  }
  record.size = blocks * info->block_bytes;
  return record;
}

Result<void> Parser::place_tensors(std::vector<TensorRecord>& records, uint64_t alignment) {
  // Padding of the last tensor may be missing, so the running sum can pass the end of the file; each
  // size is at most the file's, and an offset past the end is refused at once: no overflow.
  const uint64_t data_bytes = data_start_ < bytes_.size() ? bytes_.size() - data_start_ : 0;
  uint64_t expected = 0;
  for (TensorRecord& record : records) {
    const std::string what = "tensor " + printable_name(record.tensor.name);
    if (record.offset != expected) {
      return corrupt(what + " lies at offset " + number(record.offset) + ", expected " +
                     number(expected));
    }
    record.tensor.byte_count = record.size;
    const bool there = expected <= data_bytes && record.size <= data_bytes - expected;
    if (!there && limits_.data_may_be_absent && expected <= kAbsentBytesMax) {
      expected += (record.size + alignment - 1) & ~(alignment - 1);
      continue;
    }
    if (!there) {
      return corrupt(what + " at offset " + number(record.offset) + " needs " +
                     number(record.size) + " bytes, the data has " + number(data_bytes));
    }
    record.tensor.bytes = bytes_.subspan(static_cast<size_t>(data_start_ + expected),
                                         static_cast<size_t>(record.size));
    expected += (record.size + alignment - 1) & ~(alignment - 1);
  }
  return {};
}

Result<std::vector<GgufTensor>> Parser::read_tensors(const GgufMetadata& metadata) {
  std::vector<TensorRecord> records;
  records.reserve(static_cast<size_t>(tensor_count_));
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    TRY_ASSIGN(records.emplace_back(), read_tensor_record());
  }
  TRY_ASSIGN(const int64_t signed_alignment,
             metadata.get_int_or("general.alignment", kDefaultAlignment,
                                 {.min = static_cast<int64_t>(kAlignmentMin),
                                  .max = static_cast<int64_t>(limits_.alignment_max)}));
  const auto alignment = static_cast<uint64_t>(signed_alignment);
  if (!std::has_single_bit(alignment)) {
    return corrupt("general.alignment is " + number(alignment) + ", not a power of two");
  }
  data_start_ = (reader_.position() + alignment - 1) & ~(alignment - 1);
  TRY(place_tensors(records, alignment));
  std::vector<GgufTensor> tensors;
  tensors.reserve(records.size());
  for (const TensorRecord& record : records) tensors.push_back(record.tensor);
  return tensors;
}

}  // namespace

std::string printable_name(std::string_view text) {
  std::string out(text.substr(0, 80));
  for (char& c : out) {
    if (c < 0x20 || c > 0x7E) c = '?';
  }
  return out;
}

std::string GgufTensor::describe() const {
  std::string out = printable_name(name) + " " + ggml_type_info(type).name + " [";
  for (uint32_t d = 0; d < dim_count; ++d) {
    if (d > 0) out += ", ";
    out += number(dims[d]);
  }
  return out + "]";
}

Result<void> check_unique_tensor_names(std::span<const GgufTensor> tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const GgufTensor& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) return corrupt("tensor " + printable_name(*twice) + " appears twice");
  return {};
}

template <typename Parser>
Result<GgufImage> GgufImage::parse_with(Parser& parser) {
  GgufImage image;
  TRY(parser.read_header());
  TRY_ASSIGN(image.metadata_, parser.read_metadata());
  TRY_ASSIGN(image.tensors_, parser.read_tensors(image.metadata_));
  TRY(check_unique_tensor_names(image.tensors_));
  return image;
}

Result<GgufImage> GgufImage::parse(std::span<const std::byte> bytes, const GgufLimits& limits,
                                   uint64_t* reached) {
  Parser parser(bytes, limits);
  auto image = parse_with(parser);
  if (reached != nullptr) *reached = parser.reached();
  if (image.ok()) {
    image->header_bytes_ = std::min<uint64_t>(parser.data_start(), bytes.size());
  }
  return image;
}

}  // namespace tandem::engine
