// What the reader gives for files that are right: typed metadata, tensors, parts, identity.
#include <sys/stat.h>

#include <cmath>
#include <filesystem>

#include "engine/gguf/gguf.h"
#include "tests/support/catch.h"
#include "tests/support/gguf_writer.h"

namespace {

using tandem::Errc;
using tandem::engine::find_ggml_type;
using tandem::engine::GgufFile;
using tandem::engine::GgufImage;
using tandem::engine::GgufMetadata;
using tandem_tests::GgmlType;
using tandem_tests::GgufValueType;
using tandem_tests::GgufWriter;
using tandem_tests::TemporaryFolder;

const std::vector<float> kFloats = {1, 2, 3, 4, 5, 6, 7, 8};

template <typename T>
Errc code_of(const tandem::Result<T>& result) {
  REQUIRE_FALSE(result.ok());
  return result.error().code;
}

GgufWriter part(int no, int count, int tensors, const std::string& tensor_name) {
  GgufWriter w;
  w.string("general.architecture", "llama");
  w.u16("split.no", static_cast<uint16_t>(no)).u16("split.count", static_cast<uint16_t>(count));
  w.i32("split.tensors.count", tensors);
  w.tensor(tensor_name, GgmlType::kF32, {8}, kFloats);
  return w;
}

}  // namespace

TEST_CASE("gguf metadata: integers of every width are interchangeable") {
  GgufWriter w;
  w.u32("a", 7).i32("b", 7).u64("c", 7).i64("d", 7).u16("e", 7).i32("minus", -7);
  w.u64("huge", UINT64_MAX);
  const auto bytes = w.bytes();
  const auto image = GgufImage::parse(bytes);
  REQUIRE(image.ok());
  const GgufMetadata& m = image->metadata();
  for (const char* key : {"a", "b", "c", "d", "e"}) CHECK(*m.get_int(key, {.max = 7}) == 7);
  CHECK(code_of(m.get_int("a", {.max = 6})) == Errc::corrupt);
  CHECK(code_of(m.get_int("minus", {})) == Errc::corrupt);
  CHECK(*m.get_int("minus", {.min = -10}) == -7);
  CHECK(code_of(m.get_int("huge", {})) == Errc::corrupt);
  CHECK(m.find("huge")->unsigned_integer == UINT64_MAX);
  CHECK(code_of(m.get_int("none", {})) == Errc::not_found);
  CHECK(*m.get_int_or("none", 3, {}) == 3);
  CHECK(*m.get_float("a") == 7.0);
}

TEST_CASE("gguf metadata: a present key of the wrong type is an error even with a default") {
  GgufWriter w;
  w.string("s", "text").f32("f", 0.5f).boolean("t", true).f32("nan", NAN).u32("two", 2);
  const auto bytes = w.bytes();
  const auto image = GgufImage::parse(bytes);
  REQUIRE(image.ok());
  const GgufMetadata& m = image->metadata();
  CHECK(code_of(m.get_int_or("s", 1, {})) == Errc::corrupt);
  CHECK(code_of(m.get_int_or("f", 1, {})) == Errc::corrupt);
  CHECK(code_of(m.get_float_or("s", 1)) == Errc::corrupt);
  CHECK(code_of(m.get_string_or("f", "x")) == Errc::corrupt);
  CHECK(code_of(m.get_bool_or("two", false)) == Errc::corrupt);
  CHECK(code_of(m.get_float("nan")) == Errc::corrupt);
  CHECK(code_of(m.get_array("s")) == Errc::corrupt);
  CHECK(*m.get_bool("t"));
  CHECK(*m.get_float("f") == 0.5);
  CHECK(*m.get_string("s") == "text");
  CHECK(*m.get_string_or("none", "x") == "x");
  CHECK(*m.get_bool_or("none", true));
}

TEST_CASE("gguf metadata: scalar or array") {
  GgufWriter w;
  w.u32("one", 4).i32s("many", {1, 2, 3}).f32s("floats", {0.5f, 2}).strings("text", {"x", ""});
  const auto bytes = w.bytes();
  const auto image = GgufImage::parse(bytes);
  REQUIRE(image.ok());
  const GgufMetadata& m = image->metadata();
  CHECK(*m.get_int_list("one", 3, {}) == std::vector<int64_t>{4, 4, 4});
  CHECK(*m.get_int_list("many", 3, {}) == std::vector<int64_t>{1, 2, 3});
  CHECK(code_of(m.get_int_list("many", 4, {})) == Errc::corrupt);
  CHECK(code_of(m.get_int_list("many", 3, {.max = 2})) == Errc::corrupt);
  CHECK(code_of(m.get_int_list("floats", 2, {})) == Errc::corrupt);
  CHECK(code_of(m.get_ints("many", 2, {})) == Errc::too_large);
  CHECK(*m.get_floats("floats", 2) == std::vector<double>{0.5, 2});
  CHECK(*m.get_floats("many", 3) == std::vector<double>{1, 2, 3});
  CHECK(m.get_array("text")->strings() == std::vector<std::string_view>{"x", ""});
  CHECK(m.get_array("many")->strings().empty());
}

TEST_CASE("gguf tensors: names, shapes and bytes in file order") {
  GgufWriter w;
  w.alignment = 64;
  w.u32("general.alignment", 64);
  w.tensor("first", GgmlType::kF32, {2, 3}, std::span(kFloats).first(6));
  const std::vector<uint8_t> blocks(68, 9);
  w.tensor("second", GgmlType::kQ8_0, {32, 2}, blocks);
  w.pad_last_tensor = false;
  const auto file = GgufFile::from_bytes(w.bytes());
  REQUIRE(file.ok());
  REQUIRE(file->tensors().size() == 2);
  const auto* second = file->find_tensor("second");
  REQUIRE(second != nullptr);
  CHECK(second == &file->tensors()[1]);
  CHECK(second->describe() == "second Q8_0 [32, 2]");
  CHECK(second->bytes.size() == 68);
  CHECK(second->row_bytes() == 34);
  CHECK(second->rows() == 2);
  CHECK(second->elements() == 64);
  CHECK(second->bytes[0] == std::byte{9});
  CHECK(second->bytes.data() - file->tensors()[0].bytes.data() == 64);
  CHECK(file->tensor_bytes() == 24 + 68);
  CHECK(file->find_tensor("third") == nullptr);
  CHECK(code_of(file->tensor("third")) == Errc::not_found);
}

TEST_CASE("gguf accepts a file without tensors that ends after its metadata") {
  GgufWriter w;
  w.u32("a", 1);
  auto bytes = w.bytes();
  bytes.resize(4 + 4 + 8 + 8 + 8 + 1 + 4 + 4);
  CHECK(GgufFile::from_bytes(bytes).ok());
}

TEST_CASE("gguf types: sizes of blocks") {
  CHECK(find_ggml_type(12)->block_bytes == 144);
  CHECK(find_ggml_type(40)->block_elements == 64);
  CHECK(find_ggml_type(39)->block_bytes == 17);
  CHECK(find_ggml_type(30)->block_bytes == 2);
  CHECK(find_ggml_type(4) == nullptr);
  CHECK(find_ggml_type(43) == nullptr);
}

TEST_CASE("gguf identity follows the content, not the name or the time") {
  const TemporaryFolder folder;
  const auto open = [&](const GgufWriter& w, const char* name) {
    const auto file = GgufFile::open(w.write(folder.path() / name));
    REQUIRE(file.ok());
    return file->identity();
  };
  GgufWriter a;
  a.u32("k", 1).tensor("t", GgmlType::kF32, {8}, kFloats);
  GgufWriter b;
  b.u32("k", 2).tensor("t", GgmlType::kF32, {8}, kFloats);
  GgufWriter c;
  c.u32("k", 1).tensor("t", GgmlType::kF32, {8}, std::vector<float>(8, 1));
  CHECK(open(a, "1") == open(a, "2"));
  CHECK(open(a, "1") != open(b, "3"));
  CHECK(open(a, "1") != open(c, "4"));
  CHECK(open(a, "1").size() == 32);
  CHECK(GgufFile::from_bytes(a.bytes())->identity() == open(a, "1"));
}

TEST_CASE("gguf opens regular files only, links when allowed") {
  const TemporaryFolder folder;
  GgufWriter w;
  w.u32("k", 1);
  const std::string path = w.write(folder.path() / "model.gguf");
  const auto link = folder.path() / "link.gguf";
  std::filesystem::create_symlink(path, link);
  const auto linked = GgufFile::open(link.string());
  REQUIRE(linked.ok());
  CHECK(linked->path() == std::filesystem::canonical(path).string());
  CHECK(code_of(GgufFile::open(link.string(), {.follow_links = false})) == Errc::io);
  CHECK(GgufFile::open(path, {.follow_links = false}).ok());
  CHECK(code_of(GgufFile::open(folder.path().string())) == Errc::io);
  CHECK(code_of(GgufFile::open("/dev/null")) == Errc::io);
  CHECK(code_of(GgufFile::open((folder.path() / "none").string())) == Errc::io);
  const auto empty = folder.path() / "empty.gguf";
  std::ofstream(empty).flush();
  CHECK(code_of(GgufFile::open(empty.string())) == Errc::corrupt);
  const std::string pipe = (folder.path() / "pipe.gguf").string();
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(code_of(GgufFile::open(pipe)) == Errc::io);  // and does not block
}

TEST_CASE("gguf notices a file that was cut or rewritten while open") {
  const TemporaryFolder folder;
  GgufWriter w;
  w.u32("k", 1).tensor("t", GgmlType::kF32, {8}, kFloats);
  const std::string path = w.write(folder.path() / "model.gguf");
  const auto file = GgufFile::open(path);
  REQUIRE(file.ok());
  CHECK(file->check_unchanged().ok());
  std::filesystem::resize_file(path, 10);
  CHECK(file->check_unchanged().error().code == Errc::unavailable);
}

TEST_CASE("gguf opens a sparse file at once") {
  const TemporaryFolder folder;
  GgufWriter w;
  GgufWriter::RawTensor tensor;
  tensor.name = "big";
  tensor.dims = {uint64_t{1} << 20, uint64_t{1} << 12};  // 16 GiB of F32
  w.raw_tensor(tensor);
  const std::string path = w.write(folder.path() / "sparse.gguf");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + (uint64_t{16} << 30));
  const auto file = GgufFile::open(path);
  REQUIRE(file.ok());
  CHECK(file->tensors()[0].bytes.size() == uint64_t{16} << 30);
  CHECK(file->tensors()[0].bytes.back() == std::byte{0});
}

TEST_CASE("gguf split models: parts are found and merged") {
  const TemporaryFolder folder;
  const std::string first = part(0, 3, 3, "a").write(folder.path() / "m-00001-of-00003.gguf");
  part(1, 3, 3, "b").write(folder.path() / "m-00002-of-00003.gguf");
  part(2, 3, 3, "c").write(folder.path() / "m-00003-of-00003.gguf");
  const auto file = GgufFile::open(first);
  REQUIRE(file.ok());
  CHECK(file->part_count() == 3);
  CHECK(file->tensors().size() == 3);
  CHECK(file->find_tensor("c") != nullptr);
  CHECK(code_of(GgufFile::open((folder.path() / "m-00002-of-00003.gguf").string())) ==
        Errc::invalid_argument);
  std::filesystem::remove(folder.path() / "m-00003-of-00003.gguf");
  CHECK(code_of(GgufFile::open(first)) == Errc::io);
}

TEST_CASE("gguf split models: wrong parts are refused") {
  const TemporaryFolder folder;
  const auto first_name = folder.path() / "m-00001-of-00002.gguf";
  const auto second_name = folder.path() / "m-00002-of-00002.gguf";
  const auto open = [&](const GgufWriter& a, const GgufWriter& b) {
    b.write(second_name);
    return GgufFile::open(a.write(first_name));
  };
  CHECK(open(part(0, 2, 2, "a"), part(1, 2, 2, "b")).ok());
  CHECK(code_of(open(part(0, 2, 2, "a"), part(1, 2, 2, "a"))) == Errc::corrupt);  // same tensor
  CHECK(code_of(open(part(0, 2, 3, "a"), part(1, 2, 3, "b"))) == Errc::corrupt);  // sum
  CHECK(code_of(open(part(0, 2, 2, "a"), part(0, 2, 2, "b"))) == Errc::corrupt);  // number
  CHECK(code_of(open(part(0, 2, 2, "a"), part(1, 3, 2, "b"))) == Errc::corrupt);  // count
  CHECK(code_of(open(part(0, 2, 2, "a"), part(1, 2, 5, "b"))) == Errc::corrupt);  // total
  const std::string wrong_name = part(0, 2, 2, "a").write(folder.path() / "m.gguf");
  CHECK(code_of(GgufFile::open(wrong_name)) == Errc::invalid_argument);
  CHECK(code_of(GgufFile::from_bytes(part(0, 2, 2, "a").bytes())) == Errc::invalid_argument);
}

TEST_CASE("gguf opens the shipped model") {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  const auto path =
      std::filesystem::path(root != nullptr ? root : ".") / "tests/models/tiny-hybrid-q8_0.gguf";
  const auto file = GgufFile::open(path.string());
  REQUIRE(file.ok());
  CHECK(file->tensors().size() == 124);
  CHECK(*file->metadata().get_string("general.architecture") == "qwen35");
  CHECK(file->metadata().get_array("tokenizer.ggml.tokens")->size() == 2048);
}
