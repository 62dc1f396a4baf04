// What a device's driver holds of the host's memory, over the library of fake_nvml.cpp.
#include "service/driver_memory.h"

#include <cstdlib>
#include <fstream>
#include <functional>

#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

constexpr int64_t kHost = int64_t{127600748} * 1024;

std::unique_ptr<DriverMemory> open_as(const std::string& mode, const Clock& clock) {
  ::setenv("FAKE_NVML", mode.c_str(), 1);
  return DriverMemory::open(
      {.mem_total_bytes = kHost, .library = FAKE_NVML_PATH, .period = std::chrono::milliseconds(5)}, clock);
}

TEST_CASE("a part without a size, or with the whole host's, shares the pool; cards and hosts without do not") {
  FakeClock clock;
  CHECK(open_as("", clock) != nullptr);                    // not supported
  CHECK(open_as("total=130663165952", clock) != nullptr);  // the whole host
  CHECK(open_as("total=8522825728", clock) == nullptr);    // 8128 MiB: as a small card says
  CHECK(open_as("total=150754820096", clock) == nullptr);  // a card
  CHECK(open_as("none", clock) == nullptr);
  CHECK(open_as("broken", clock) == nullptr);
  CHECK(DriverMemory::open({.mem_total_bytes = kHost, .library = "/no/such/library"}, clock) == nullptr);
}

TEST_CASE("processes have bytes, are listed without, leave the list; an old answer says nothing") {
  const TempDir dir;
  const std::string path = dir.path() + "/list";
  const auto write = [&](const std::string& lines) {
    std::ofstream(path + ".new") << lines;
    std::filesystem::rename(path + ".new", path);
  };
  const auto until = [](const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
    }
    return true;
  };
  FakeClock clock;
  write("7 5000\n8 18446744073709551615\n9 70\n");
  const auto memory = open_as("list=" + path, clock);
  REQUIRE(memory != nullptr);
  CHECK(memory->of({7, 9, 10}).bytes == 5070);
  CHECK(memory->of({7, 9, 10}).listed);
  CHECK(memory->of({8}).listed);  // the driver does not say how much
  CHECK(memory->of({8}).bytes == 0);
  CHECK_FALSE(memory->of({10}).listed);
  CHECK(memory->of({10}).known);
  write("9 70\n");
  CHECK(until([&] { return !memory->of({7}).listed; }));
  CHECK(memory->of({7, 9}).bytes == 70);
  clock.advance(std::chrono::seconds(6));
  CHECK(until([&] { return memory->of({9}).known; }));  // asked again
}

}  // namespace
}  // namespace tandem::service
