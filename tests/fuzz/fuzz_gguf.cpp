// Parses arbitrary bytes as a GGUF file and, when they are accepted, touches everything that the reader
// promises: every tensor's first and last bytes, every key through every accessor.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/check.h"
#include "base/utf8.h"
#include "engine/gguf/gguf.h"

namespace {

using tandem::engine::GgufArray;
using tandem::engine::GgufFile;
using tandem::engine::GgufImage;
using tandem::engine::GgufMetadata;
using tandem::engine::GgufTensor;
using tandem::engine::GgufValueType;

// Keeps reads from being optimised away.
uint64_t seen = 0;

void walk_array(const GgufArray& array) {
  const auto strings = array.strings();
  CHECK(array.element_type() != GgufValueType::string || strings.size() == array.size());
  for (const std::string_view text : strings) {
    if (!text.empty()) seen += static_cast<uint8_t>(text.front()) + static_cast<uint8_t>(text.back());
  }
  for (size_t i = 0; i < array.size() && i < 1000; ++i) {
    seen += static_cast<uint64_t>(array.int_at(i).value_or(0));
    seen += array.float_at(i).has_value() ? 1 : 0;
  }
}

void walk_metadata(const GgufMetadata& metadata) {
  for (const auto& [key, value] : metadata.entries()) {
    CHECK(!key.empty() && tandem::utf8::is_valid(key));
    CHECK(metadata.find(key) == &value);
    if (value.type == GgufValueType::array) walk_array(value.array);
    const auto integer = metadata.get_int(key, {.min = -5, .max = 100});
    CHECK(!integer.ok() || (*integer >= -5 && *integer <= 100));
    seen += metadata.get_float(key).ok() ? 1 : 0;
    seen += metadata.get_bool(key).ok() ? 1 : 0;
    const auto text = metadata.get_string(key);
    if (text.ok()) seen += text->size();
    const auto list = metadata.get_int_list(key, 4, {});
    CHECK(!list.ok() || list->size() == 4);
    const auto ints = metadata.get_ints(key, 64, {});
    CHECK(!ints.ok() || ints->size() <= 64);
    const auto floats = metadata.get_floats(key, 64);
    CHECK(!floats.ok() || floats->size() <= 64);
  }
}

void walk_tensor(const GgufTensor& tensor, std::span<const std::byte> file) {
  CHECK(!tensor.name.empty() && tensor.name.size() < 64);
  CHECK(!tensor.bytes.empty());
  CHECK(tensor.bytes.data() >= file.data());
  CHECK(tensor.bytes.data() + tensor.bytes.size() <= file.data() + file.size());
  CHECK(tensor.row_bytes() * tensor.rows() == tensor.bytes.size());
  const auto& info = tandem::engine::ggml_type_info(tensor.type);
  CHECK(tensor.elements() / info.block_elements * info.block_bytes == tensor.bytes.size());
  seen += static_cast<uint64_t>(tensor.bytes.front()) + static_cast<uint64_t>(tensor.bytes.back());
  seen += tensor.describe().size();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto image = GgufImage::parse(bytes);
  const auto header = GgufImage::parse(bytes, {.data_may_be_absent = true});
  CHECK(!image.ok() || header.ok());
  if (header.ok()) {
    for (const GgufTensor& tensor : header->tensors()) {
      CHECK(tensor.byte_count > 0);
      CHECK(tensor.bytes.empty() || tensor.bytes.size() == tensor.byte_count);
    }
  }
  if (!image.ok()) {
    CHECK(!image.error().message.empty() && tandem::utf8::is_valid(image.error().message));
    return 0;
  }
  CHECK(image->header_bytes() <= size);
  walk_metadata(image->metadata());
  for (const GgufTensor& tensor : image->tensors()) walk_tensor(tensor, bytes);
  const auto file = GgufFile::from_bytes({bytes.begin(), bytes.end()});
  if (!file.ok()) return 0;  // split keys that do not fit
  CHECK(file->identity().size() == 32);
  for (const GgufTensor& tensor : file->tensors()) CHECK(file->find_tensor(tensor.name) == &tensor);
  return 0;
}
