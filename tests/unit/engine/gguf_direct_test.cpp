// Models that are read past the page cache: the same model as a mapped one, and no SIGBUS from a file that
// somebody cuts.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/fd.h"
#include "engine/gguf/direct_file.h"
#include "engine/gguf/gguf.h"
#include "tests/support/catch.h"
#include "tests/support/gguf_writer.h"

namespace {

using tandem::Errc;
using tandem::engine::DirectFile;
using tandem::engine::GgufFile;
using tandem::engine::GgufOpenOptions;
using tandem::engine::LoadMode;
using tandem_tests::GgmlType;
using tandem_tests::GgufWriter;
using tandem_tests::TemporaryFolder;

constexpr GgufOpenOptions kDirect = {.load = LoadMode::direct};

std::vector<float> numbers(size_t count, uint32_t seed) {
  std::vector<float> out(count);
  uint32_t state = seed;
  for (float& value : out) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(state >> 8);
  }
  return out;
}

// About 20 MiB, so that there are several blocks and an odd end.
GgufWriter large_model() {
  GgufWriter w;
  w.string("general.architecture", "llama");
  w.tensor("a", GgmlType::kF32, {1 << 20}, numbers(1 << 20, 1));
  w.tensor("b", GgmlType::kF32, {8, 3}, numbers(24, 2));
  w.tensor("c", GgmlType::kF32, {4'000'003}, numbers(4'000'003, 3));
  return w;
}

bool same_model(const GgufFile& a, const GgufFile& b) {
  bool same = a.identity() == b.identity() && a.tensors().size() == b.tensors().size() &&
              a.file_bytes() == b.file_bytes() && a.tensor_bytes() == b.tensor_bytes();
  for (size_t i = 0; same && i < a.tensors().size(); ++i) {
    const auto& x = a.tensors()[i];
    const auto& y = b.tensors()[i];
    same = x.name == y.name && x.dims == y.dims && x.bytes.size() == y.bytes.size() &&
           std::memcmp(x.bytes.data(), y.bytes.data(), x.bytes.size()) == 0;
  }
  return same;
}

size_t cached_pages(const std::string& path) {
  const tandem::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto size = static_cast<size_t>(std::filesystem::file_size(path));
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  REQUIRE(address != MAP_FAILED);
  std::vector<unsigned char> pages((size + 4095) / 4096);
  REQUIRE(::mincore(address, size, pages.data()) == 0);
  ::munmap(address, size);
  return static_cast<size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1U) != 0; }));
}

// Written and out of the page cache, as a model that was downloaded a while ago.
void settle(const std::string& path) {
  const tandem::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  REQUIRE(::fsync(fd.get()) == 0);
  REQUIRE(::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED) == 0);
}

}  // namespace

TEST_CASE("gguf direct: the same model, and nothing of it in the page cache") {
  const TemporaryFolder folder;
  const std::string path = large_model().write(folder.path() / "model.gguf");
  settle(path);
  const bool starts_cold = cached_pages(path) == 0;  // memory file systems never are
  auto direct = GgufFile::open(path, kDirect);
  REQUIRE(direct.ok());
  REQUIRE(direct->read_tensors().ok());
  CHECK(direct->load_mode() == LoadMode::direct);
  if (starts_cold) CHECK(cached_pages(path) == 0);
  const auto mapped = GgufFile::open(path);
  REQUIRE(mapped.ok());
  CHECK(same_model(*direct, *mapped));
  CHECK(direct->check_unchanged().ok());
}

TEST_CASE("gguf direct: sizes around the block's and the alignment's borders") {
  const TemporaryFolder folder;
  for (const int64_t floats : {1, 1000, 1023, 1024, 1025, 2'097'000, 2'097'152, 2'098'176}) {
    GgufWriter w;
    w.u32("k", 1);
    w.tensor("t", GgmlType::kF32, {static_cast<uint64_t>(floats)},
             numbers(static_cast<size_t>(floats), 9));
    const std::string path = w.write(folder.path() / "model.gguf");
    auto direct = GgufFile::open(path, kDirect);
    REQUIRE(direct.ok());
    REQUIRE(direct->read_tensors().ok());
    CHECK(same_model(*direct, GgufFile::open(path).value()));
  }
}

TEST_CASE("gguf direct: a header larger than the first read, and several parts") {
  const TemporaryFolder folder;
  GgufWriter w;
  w.string("general.architecture", "llama");
  for (int i = 0; i < 12; ++i) w.string("text." + std::to_string(i), std::string(1 << 20, 'x'));
  w.string("last", "z");
  w.tensor("t", GgmlType::kF32, {8}, numbers(8, 1));
  const std::string path = w.write(folder.path() / "header.gguf");
  auto direct = GgufFile::open(path, kDirect);
  REQUIRE(direct.ok());
  CHECK(*direct->metadata().get_string("last") == "z");
  REQUIRE(direct->read_tensors().ok());
  CHECK(same_model(*direct, GgufFile::open(path).value()));
  for (int no = 0; no < 2; ++no) {
    GgufWriter part;
    part.u16("split.no", static_cast<uint16_t>(no)).u16("split.count", 2).i32("split.tensors.count", 2);
    part.tensor(no == 0 ? "a" : "b", GgmlType::kF32, {100'000}, numbers(100'000, 5));
    part.write(folder.path() / ("m-0000" + std::to_string(no + 1) + "-of-00002.gguf"));
  }
  const std::string first = (folder.path() / "m-00001-of-00002.gguf").string();
  auto parts = GgufFile::open(first, kDirect);
  REQUIRE(parts.ok());
  REQUIRE(parts->read_tensors().ok());
  CHECK(same_model(*parts, GgufFile::open(first).value()));
}

TEST_CASE("gguf direct: broken files give the same error as mapped ones") {
  const TemporaryFolder folder;
  const auto whole = large_model().bytes();
  for (const size_t kept : {size_t{1}, size_t{20}, size_t{60}, size_t{4096}, whole.size() - 40}) {
    std::vector<std::byte> bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(kept));
    const std::string path = (folder.path() / "cut.gguf").string();
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()),
                                                static_cast<std::streamsize>(bytes.size()));
    const auto mapped = GgufFile::open(path);
    const auto direct = GgufFile::open(path, kDirect);
    REQUIRE_FALSE(mapped.ok());
    REQUIRE_FALSE(direct.ok());
    CHECK(direct.error().message == mapped.error().message);
  }
  CHECK(GgufFile::open((folder.path() / "none").string(), kDirect).error().code == Errc::io);
}

TEST_CASE("gguf direct: a file cut while it is read is an error, one cut later is nobody's harm") {
  const TemporaryFolder folder;
  const std::string path = large_model().write(folder.path() / "model.gguf");
  const auto whole = std::filesystem::file_size(path);
  for (const uint64_t size : {uint64_t{4096} * 1000, uint64_t{5'000'001}, uint64_t{4096}}) {
    auto file = GgufFile::open(path, kDirect);
    REQUIRE(file.ok());
    std::filesystem::resize_file(path, size);
    const auto read = file->read_tensors();
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().code == Errc::unavailable);
    CHECK(read.error().message.find("truncated") != std::string::npos);
    large_model().write(path);
    REQUIRE(std::filesystem::file_size(path) == whole);
  }
  auto file = GgufFile::open(path, kDirect);
  REQUIRE(file.ok());
  REQUIRE(file->read_tensors().ok());
  std::filesystem::resize_file(path, 10);
  uint64_t sum = 0;
  for (const auto& tensor : file->tensors()) {
    for (const std::byte b : tensor.bytes) sum += static_cast<uint64_t>(b);
  }
  CHECK(sum > 0);
  CHECK(file->check_unchanged().error().code == Errc::unavailable);
}

TEST_CASE("direct file: where direct reads are refused the same bytes come, and leave the cache") {
  const TemporaryFolder folder;
  const std::string path = large_model().write(folder.path() / "model.gguf");
  settle(path);
  const bool starts_cold = cached_pages(path) == 0;
  auto buffered = DirectFile::open(path, true, false);
  REQUIRE(buffered.ok());
  CHECK_FALSE(buffered->direct());
  CHECK(std::string(buffered->how()).find("refuses") != std::string::npos);
  REQUIRE(buffered->read_prefix(10).ok());
  CHECK(buffered->prefix() >= 10);
  REQUIRE(buffered->read_all().ok());
  if (starts_cold) CHECK(cached_pages(path) == 0);
  std::vector<std::byte> some(5000);
  REQUIRE(buffered->read_at(123'457, some).ok());
  const auto expected = large_model().bytes();
  CHECK(std::equal(expected.begin(), expected.end(), buffered->bytes().begin(), buffered->bytes().end()));
  CHECK(std::equal(some.begin(), some.end(), expected.begin() + 123'457));
}

TEST_CASE("load mode: a file that lies in memory already is mapped, others are read") {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "x").string();
  std::ofstream(path) << "x";
  if (std::filesystem::exists("/dev/shm")) {
    CHECK(tandem::engine::preferred_load_mode("/dev/shm") == LoadMode::mapped);
  }
  CHECK(tandem::engine::preferred_load_mode("/nowhere") == LoadMode::direct);
}
