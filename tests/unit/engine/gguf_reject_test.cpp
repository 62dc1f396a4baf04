// One test per way a GGUF file can be wrong; each starts from a file that is accepted.
#include <cmath>
#include <limits>

#include "engine/gguf/gguf.h"
#include "tests/support/catch.h"
#include "tests/support/gguf_writer.h"

namespace {

using tandem::Errc;
using tandem::engine::GgufImage;
using tandem::engine::GgufLimits;
using tandem_tests::ByteWriter;
using tandem_tests::GgmlType;
using tandem_tests::GgufWriter;

const std::vector<float> kFloats(64, 1.0f);

GgufWriter good() {
  GgufWriter w;
  w.string("general.architecture", "llama").u32("llama.block_count", 1);
  w.tensor("a.weight", GgmlType::kF32, {8, 4}, std::span(kFloats).first(32));
  w.tensor("b.weight", GgmlType::kF32, {3}, std::span(kFloats).first(3));
  return w;
}

// The error of a file that must be refused; the message must contain `words`.
void check_rejected(const std::vector<std::byte>& bytes, Errc code, const std::string& words,
                    const GgufLimits& limits = {}) {
  // An exact-size copy, so that a sanitizer sees the first byte past the end.
  const std::vector<std::byte> exact(bytes.begin(), bytes.end());
  const auto image = GgufImage::parse(exact, limits);
  REQUIRE_FALSE(image.ok());
  INFO(image.error().message);
  CHECK(image.error().code == code);
  CHECK(image.error().message.find(words) != std::string::npos);
}

void check_rejected(const GgufWriter& writer, const std::string& words) {
  check_rejected(writer.bytes(), Errc::corrupt, words);
}

void check_accepted(const GgufWriter& writer) {
  const auto bytes = writer.bytes();
  const auto image = GgufImage::parse(bytes);
  INFO((image.ok() ? "" : image.error().message));
  CHECK(image.ok());
}

GgufWriter with_tensor(GgufWriter::RawTensor tensor) { return good().raw_tensor(std::move(tensor)); }

GgufWriter::RawTensor raw_tensor(std::string name, GgmlType type, std::vector<uint64_t> dims,
                                 size_t bytes) {
  GgufWriter::RawTensor tensor;
  tensor.name = std::move(name);
  tensor.type = static_cast<uint32_t>(type);
  tensor.dims = std::move(dims);
  tensor.data.resize(bytes);
  return tensor;
}

}  // namespace

TEST_CASE("gguf accepts the file that the rejections start from") { check_accepted(good()); }

TEST_CASE("gguf rejects an empty file") { check_rejected({}, Errc::corrupt, "magic"); }

TEST_CASE("gguf rejects a wrong magic") {
  GgufWriter w = good();
  w.magic = 0x46554748;
  check_rejected(w, "magic");
}

TEST_CASE("gguf rejects other versions and the other byte order") {
  for (const uint32_t version : {0u, 1u, 2u, 4u}) {
    GgufWriter w = good();
    w.version = version;
    check_rejected(w, "only version 3");
  }
  GgufWriter w = good();
  w.version = 0x03000000;
  check_rejected(w, "big-endian");
}

TEST_CASE("gguf rejects every truncation of the header and the tensors") {
  GgufWriter w = good();
  w.pad_last_tensor = false;
  const std::vector<std::byte> whole = w.bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::byte> cut(whole.begin(),
                                     whole.begin() + static_cast<std::ptrdiff_t>(size));
    INFO("cut to " << size << " of " << whole.size());
    CHECK_FALSE(GgufImage::parse(cut).ok());
  }
  CHECK(GgufImage::parse(whole).ok());
}

TEST_CASE("gguf rejects counts over the limits") {
  GgufWriter w = good();
  w.raw_tensor_count = GgufLimits{}.tensors_max + 1;
  check_rejected(w.bytes(), Errc::too_large, "tensors, the limit");
  w.raw_tensor_count = std::nullopt;
  w.raw_key_count = std::numeric_limits<uint64_t>::max();
  check_rejected(w.bytes(), Errc::too_large, "keys, the limit");
}

TEST_CASE("gguf rejects counts that the bytes left cannot hold") {
  GgufWriter w = good();
  w.raw_tensor_count = 60000;
  check_rejected(w, "60000 tensors, only");
  w.raw_tensor_count = std::nullopt;
  w.raw_key_count = 60000;
  check_rejected(w, "60000 keys");
}

TEST_CASE("gguf rejects an empty key") { check_rejected(good().u32("", 1), "empty name"); }

TEST_CASE("gguf rejects a duplicate key") {
  check_rejected(good().u32("general.architecture", 1), "general.architecture appears twice");
}

TEST_CASE("gguf rejects a key that is not UTF-8") {
  check_rejected(good().u32("a\xff", 1), "not UTF-8");
}

TEST_CASE("gguf rejects a key that is too long") {
  check_rejected(good().u32(std::string(70000, 'k'), 1).bytes(), Errc::too_large,
                 "70000 bytes, the limit is 65535");
}

TEST_CASE("gguf rejects an unknown value type") {
  check_rejected(good().raw("k", 13, {}), "unknown value type 13");
}

TEST_CASE("gguf rejects a bool that is neither 0 nor 1") {
  check_rejected(good().raw("k", 7, ByteWriter().put<uint8_t>(2).bytes()), "bool with the byte 2");
}

TEST_CASE("gguf rejects a string longer than the file") {
  const auto value = ByteWriter().put<uint64_t>(5000).bytes();
  check_rejected(good().raw("k", 8, value), "ends inside key k");
}

TEST_CASE("gguf rejects a string over the limit before it looks at the bytes") {
  const auto value = ByteWriter().put<uint64_t>(std::numeric_limits<uint64_t>::max()).bytes();
  check_rejected(good().raw("k", 8, value).bytes(), Errc::too_large, "the limit is");
}

TEST_CASE("gguf rejects an array of arrays") {
  const auto value = ByteWriter().put<uint32_t>(9).put<uint64_t>(0).bytes();
  check_rejected(good().raw("k", 9, value), "array of arrays");
}

TEST_CASE("gguf rejects an array of an unknown type") {
  const auto value = ByteWriter().put<uint32_t>(77).put<uint64_t>(0).bytes();
  check_rejected(good().raw("k", 9, value), "unknown type 77");
}

TEST_CASE("gguf rejects array counts that the bytes left cannot hold") {
  for (const uint32_t type : {0u, 5u, 8u, 12u}) {
    const auto value = ByteWriter().put(type).put<uint64_t>(1 << 20).bytes();
    check_rejected(good().raw("k", 9, value), "ends inside");
  }
}

TEST_CASE("gguf rejects array counts over the limit") {
  // 2^61 elements of 8 bytes overflow 64 bits to 0 bytes.
  const auto value = ByteWriter().put<uint32_t>(10).put<uint64_t>(uint64_t{1} << 61).bytes();
  check_rejected(good().raw("k", 9, value).bytes(), Errc::too_large, "elements, the limit");
}

TEST_CASE("gguf rejects an alignment that is no power of two, too small, too large or no number") {
  check_rejected(good().u32("general.alignment", 48), "not a power of two");
  check_rejected(good().u32("general.alignment", 0), "value 0");
  check_rejected(good().u32("general.alignment", 4), "value 4");
  check_rejected(good().u32("general.alignment", 1u << 20), "allowed are 8 to 65536");
  check_rejected(good().string("general.alignment", "32"), "expected an integer");
}

TEST_CASE("gguf rejects tensors of no or too many dimensions") {
  auto tensor = raw_tensor("t", GgmlType::kF32, {1}, 4);
  tensor.dim_count = 0;
  check_rejected(with_tensor(tensor), "0 dimensions");
  check_rejected(with_tensor(raw_tensor("t", GgmlType::kF32, {1, 1, 1, 1, 1}, 4)), "5 dimensions");
}

TEST_CASE("gguf rejects a dimension of zero") {
  check_rejected(with_tensor(raw_tensor("t", GgmlType::kF32, {8, 0}, 0)), "dimension of 0");
}

TEST_CASE("gguf rejects dims whose product overflows") {
  const uint64_t big = uint64_t{1} << 32;
  check_rejected(with_tensor(raw_tensor("t", GgmlType::kF32, {big, big}, 0)), "2^63");
  check_rejected(with_tensor(raw_tensor("t", GgmlType::kF32, {big, big, big, big}, 0)), "2^63");
  check_rejected(with_tensor(raw_tensor("t", GgmlType::kF32, {UINT64_MAX}, 0)), "2^63");
}

TEST_CASE("gguf rejects a tensor whose byte size overflows or exceeds the file") {
  // 2^62 elements of 4 bytes are 2^64: zero in 64 bits.
  check_rejected(with_tensor(raw_tensor("t", GgmlType::kF32, {uint64_t{1} << 62}, 0)),
                 "larger than the file");
  check_rejected(with_tensor(raw_tensor("t", GgmlType::kF32, {4096}, 0)), "larger than the file");
}

TEST_CASE("gguf rejects rows that are not whole blocks") {
  check_rejected(with_tensor(raw_tensor("t", GgmlType::kQ4_K, {128, 2}, 144)),
                 "blocks of Q4_K have 256");
  check_accepted(with_tensor(raw_tensor("t", GgmlType::kQ4_K, {256, 2}, 288)));
}

TEST_CASE("gguf rejects unknown and removed tensor types") {
  for (const uint32_t type : {4u, 5u, 31u, 36u, 43u, 0xFFFFFFFFu}) {
    auto tensor = raw_tensor("t", GgmlType::kF32, {256}, 4096);
    tensor.type = type;
    check_rejected(with_tensor(tensor), "unknown type " + std::to_string(type));
  }
}

TEST_CASE("gguf rejects a tensor that is not where the running sum says") {
  for (const uint64_t offset : {uint64_t{0}, uint64_t{128}, uint64_t{161}, uint64_t{192},
                                UINT64_MAX - 31}) {
    auto tensor = raw_tensor("t", GgmlType::kF32, {8}, 32);
    tensor.offset = offset;  // the right one is 160
    check_rejected(with_tensor(tensor), "expected 160");
  }
}

TEST_CASE("gguf rejects data past the end of the file") {
  check_rejected(with_tensor(raw_tensor("t", GgmlType::kF32, {40}, 32)), "needs 160 bytes");
}

TEST_CASE("gguf rejects duplicate tensor names") {
  check_rejected(with_tensor(raw_tensor("a.weight", GgmlType::kF32, {8}, 32)),
                 "a.weight appears twice");
}

TEST_CASE("gguf rejects empty, long and non-UTF-8 tensor names") {
  check_rejected(with_tensor(raw_tensor("", GgmlType::kF32, {8}, 32)), "empty name");
  check_rejected(with_tensor(raw_tensor("\xc3(", GgmlType::kF32, {8}, 32)), "not UTF-8");
  check_rejected(with_tensor(raw_tensor(std::string(64, 'n'), GgmlType::kF32, {8}, 32)).bytes(),
                 Errc::too_large, "64 bytes, the limit is 63");
  check_accepted(with_tensor(raw_tensor(std::string(63, 'n'), GgmlType::kF32, {8}, 32)));
}

TEST_CASE("gguf errors do not repeat unprintable names") {
  const auto bytes = good().u32("\x1b[31mred", 1).u32("\x1b[31mred", 1).bytes();
  const auto image = GgufImage::parse(bytes);
  REQUIRE_FALSE(image.ok());
  CHECK(image.error().message == "key ?[31mred appears twice");
}
