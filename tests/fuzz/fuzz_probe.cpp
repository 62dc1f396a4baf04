// The texts under /proc: any bytes parse or are refused; what parsed is inside its ranges, and a
// refusal changes nothing.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "memory_budget/probe.h"

namespace {

using tandem::budget::Buddy;
using tandem::budget::Meminfo;
using tandem::budget::ProcessMemory;
using tandem::budget::ProcessStat;
using tandem::budget::Psi;
using tandem::budget::Vmstat;

void require(bool holds) {
  if (!holds) std::abort();
}

template <typename T>
bool parsed(bool (*parse)(std::string_view, T&) noexcept, std::string_view text, T& out) {
  const T before = out;
  const bool ok = parse(text, out);
  if (!ok) require(std::memcmp(&before, &out, sizeof(T)) == 0);
  return ok;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Meminfo memory;
  if (parsed(tandem::budget::parse_meminfo, text, memory)) {
    require(memory.total > 0 && memory.free <= memory.total && memory.available <= memory.total);
    require(tandem::budget::driver_residual(memory) >= 0);
    require(tandem::budget::allocatable_bytes(memory) <= memory.total);
    require(tandem::budget::allocatable_bytes(memory) >= 0);
  }
  Psi psi;
  if (parsed(tandem::budget::parse_psi, text, psi)) {
    require(psi.some.avg10 >= 0 && psi.some.avg10 <= 10099 && psi.full.avg10 >= 0);
  }
  Buddy buddy;
  if (parsed(tandem::budget::parse_buddyinfo, text, buddy)) {
    require(buddy.orders <= tandem::budget::kBuddyOrdersMax);
    require(tandem::budget::blocks_at_least(buddy, 0) >= tandem::budget::blocks_at_least(buddy, 9));
  }
  Vmstat vmstat;
  if (parsed(tandem::budget::parse_vmstat, text, vmstat)) require(vmstat.allocstalls >= 0);
  ProcessStat stat;
  if (parsed(tandem::budget::parse_process_stat, text, stat)) {
    require(stat.pid > 0 && stat.parent >= 0 && stat.name.back() == '\0');
  }
  ProcessMemory used;
  if (parsed(tandem::budget::parse_process_status, text, used)) require(used.uid >= 0 && used.anon >= 0);
  parsed(tandem::budget::parse_smaps_rollup, text, used);
  tandem::budget::is_driver_no_memory_line(text);
  return 0;
}
