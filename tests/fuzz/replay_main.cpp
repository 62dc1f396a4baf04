// Runs a fuzz target over every file of a corpus folder without libFuzzer, so that regression inputs
// replay in ctest under any compiler. Each input is copied to an exact-size heap block: an overrun of
// one byte is then visible to AddressSanitizer.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  size_t inputs = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
      const auto copy = std::make_unique<uint8_t[]>(bytes.size());
      if (!bytes.empty()) std::memcpy(copy.get(), bytes.data(), bytes.size());
      LLVMFuzzerTestOneInput(copy.get(), bytes.size());
      ++inputs;
    }
  }
  std::printf("%zu inputs replayed\n", inputs);
  return inputs > 0 ? 0 : 1;
}
