// Loads the weights of one GGUF file and prints what it took, as one JSON line: seconds from open to all
// tensors in memory, the process's highest and present memory, and what is left in the page cache.
//
// Before that it takes as much anonymous memory twice and gives it back. A virtual machine whose host takes free
// memory back pays for the first touch of each page ten times what a page costs otherwise; the first round shows
// that price (first_touch), the second what this kernel needs (touch), and the load is measured without the host's part.
//
//   load_bench FILE direct|mapped
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/json.h"
#include "engine/gguf/gguf.h"

namespace {

using tandem::Json;
using tandem::engine::GgufFile;
using tandem::engine::LoadMode;

int64_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

int64_t cached_bytes(const std::string& path) {
  const tandem::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || info.st_size == 0) return -1;
  const auto size = static_cast<size_t>(info.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return -1;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((size + page - 1) / page);
  int64_t cached = -1;
  if (::mincore(address, size, pages.data()) == 0) {
    cached = 0;
    for (const unsigned char p : pages) cached += (p & 1U) != 0 ? static_cast<int64_t>(page) : 0;
  }
  ::munmap(address, size);
  return cached;
}

// Seconds that taking `bytes` of anonymous memory with two threads costs; gives it back.
double take_memory(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t half = (bytes / 2 + kHugePage - 1) / kHugePage * kHugePage;
  void* address = ::mmap(nullptr, 2 * half + kHugePage, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return -1;
  auto* const begin = static_cast<char*>(address);
  char* const first = begin + (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  (void)::madvise(first, 2 * half, MADV_HUGEPAGE);
  const auto begun = std::chrono::steady_clock::now();
  const auto populate = [half](char* from) { (void)::madvise(from, half, MADV_POPULATE_WRITE); };
  {
    const std::jthread other(populate, first + half);
    populate(first);
  }
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  ::munmap(address, 2 * half + kHugePage);
  return took;
}

// The highest memory of the process is counted anew from here.
void reset_peak() {
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5";
}

// Touches every page, as a first pass over the weights does.
uint64_t touch(const GgufFile& file) {
  uint64_t sum = 0;
  for (const auto& tensor : file.tensors()) {
    for (size_t i = 0; i < tensor.bytes.size(); i += 4096) sum += static_cast<uint64_t>(tensor.bytes[i]);
  }
  return sum;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count == 3 ? arguments[2] : "";
  if (mode != "direct" && mode != "mapped") {
    std::fprintf(stderr, "usage: load_bench FILE direct|mapped\n");
    return 2;
  }
  struct stat info {};
  if (::stat(arguments[1], &info) != 0) {
    std::fprintf(stderr, "%s cannot be read\n", arguments[1]);
    return 1;
  }
  const double first_touch_s = take_memory(static_cast<size_t>(info.st_size));
  const double touch_s = take_memory(static_cast<size_t>(info.st_size));
  reset_peak();
  const auto begun = std::chrono::steady_clock::now();
  auto file = GgufFile::open(arguments[1],
                             {.load = mode == "direct" ? LoadMode::direct : LoadMode::mapped});
  if (!file.ok()) {
    std::fprintf(stderr, "%s\n", file.error().message.c_str());
    return 1;
  }
  if (const auto read = file->read_tensors(); !read.ok()) {
    std::fprintf(stderr, "%s\n", read.error().message.c_str());
    return 1;
  }
  const double read_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  const uint64_t sum = touch(*file);
  const double all_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  const Json out = Json::object({{"how", file->load_note()},
                                 {"bytes", static_cast<int64_t>(file->file_bytes())},
                                 {"seconds", mode == "direct" ? read_s : all_s},
                                 {"touched_seconds", all_s},
                                 {"first_touch_seconds", first_touch_s},
                                 {"touch_seconds", touch_s},
                                 {"peak_bytes", status_bytes("VmHWM")},
                                 {"anonymous_bytes", status_bytes("RssAnon")},
                                 {"cached_bytes", cached_bytes(file->path())},
                                 {"sum", static_cast<int64_t>(sum & 0xFFFF)}});
  std::printf("%s\n", out.dump().c_str());
  return 0;
}
