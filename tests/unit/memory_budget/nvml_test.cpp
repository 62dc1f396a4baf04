// The driver's management library, played by fake_nvml.cpp.
#include <cstdlib>

#include "memory_budget/probe_nvml.h"
#include "tests/support/catch.h"

namespace tandem::budget {
namespace {

constexpr int64_t kHost = int64_t{127600748} * 1024;

Result<std::unique_ptr<NvmlProbe>> open_as(const char* mode) {
  ::setenv("FAKE_NVML", mode, 1);
  return NvmlProbe::open(FAKE_NVML_PATH);
}

}  // namespace

TEST_CASE("nvml: an integrated part knows processes and no size") {
  auto probe = open_as("");
  REQUIRE(probe.ok());
  REQUIRE((*probe)->devices() == 1);
  const DeviceReading reading = (*probe)->read(0, true);
  CHECK(judge_device_memory(reading.answer, kHost) == DeviceMemoryKind::not_supported);
  CHECK(reading.answer_error == "Not Supported");
  REQUIRE(reading.has_processes);
  REQUIRE(reading.processes.size() == 2);
  CHECK(reading.processes[0].bytes == 1000);
  CHECK(reading.processes[1].bytes == -1);
  ProcessTree tree;
  tree.processes.resize(2);
  tree.processes[0].stat.pid = 100;
  tree.processes[1].stat.pid = 101;
  CHECK(device_bytes_of(reading, tree) == 1000);
  tree.processes[0].stat.pid = 7;
  CHECK(device_bytes_of(reading, tree) == 0);
}

TEST_CASE("nvml: all of the host, a small number, a card") {
  const auto kind = [](const char* mode, bool integrated) {
    auto probe = open_as(mode);
    REQUIRE(probe.ok());
    return judge_device_memory((*probe)->read(0, integrated).answer, kHost);
  };
  CHECK(kind("total=130663165952", true) == DeviceMemoryKind::whole_host);
  CHECK(kind("total=8522825728", true) == DeviceMemoryKind::implausible);
  CHECK(kind("total=150754820096", false) == DeviceMemoryKind::discrete);
}

TEST_CASE("nvml: more processes than room, and hosts without") {
  auto probe = open_as("many");
  REQUIRE(probe.ok());
  CHECK((*probe)->read(0, true).processes.size() == 200);
  CHECK(open_as("broken").error().code == Errc::unavailable);
  CHECK(open_as("none").error().code == Errc::not_found);
  CHECK(NvmlProbe::open("libno-such-thing.so.1").error().code == Errc::not_found);
  CHECK(NvmlProbe::open("libm.so.6").error().code == Errc::corrupt);
}

TEST_CASE("nvml: this host's own library, where it has one") {
  auto probe = NvmlProbe::open();
  if (!probe.ok()) return;
  for (size_t i = 0; i < (*probe)->devices(); ++i) {
    const DeviceReading reading = (*probe)->read(i, false);
    CHECK((reading.answer.success || !reading.answer_error.empty()));
    WARN("device " << i << ": " << device_memory_kind_name(judge_device_memory(reading.answer, kHost)) << ", "
                   << reading.answer.total_bytes << " bytes, " << reading.processes.size()
                   << " processes, list " << reading.has_processes);
  }
}

}  // namespace tandem::budget
