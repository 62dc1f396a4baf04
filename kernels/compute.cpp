#include "kernels/compute.h"

#include <algorithm>
#include <cstdlib>

#include "base/check.h"
#include "kernels/simd/table.h"

namespace tandem::kernels {
namespace {

constexpr std::size_t kAlign = 64;
// Waking and joining the others costs about a microsecond while they spin.
constexpr double kParallelMinNs = 5000.0;

std::size_t round_up(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

void Compute::AlignedFree::operator()(std::byte* bytes) const noexcept { std::free(bytes); }

Compute::Compute(const ComputeOptions& options)
    : isa_(options.isa),
      table_(kernel_table(options.isa)),
      scratch_bytes_(round_up(options.scratch_bytes_per_thread)),
      pool_(options.threads) {
  CHECK(isa_supported(options.isa));
  if (scratch_bytes_ != 0) {
    const std::size_t total = scratch_bytes_ * static_cast<std::size_t>(options.threads);
    scratch_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlign, total)));
    CHECK_MSG(scratch_ != nullptr, "no memory for the scratch of the compute threads");
  }
}

Compute::~Compute() = default;

std::span<std::byte> Compute::scratch(int thread) noexcept {
  return {scratch_.get() + scratch_bytes_ * static_cast<std::size_t>(thread), scratch_bytes_};
}

void Compute::split(std::int64_t count, double cost_each_ns,
                    FunctionRef<void(std::int64_t begin, std::int64_t end, int thread)> fn) {
  if (count <= 0) {
    return;
  }
  if (threads() == 1 || count == 1 || static_cast<double>(count) * cost_each_ns < kParallelMinNs) {
    fn(0, count, 0);
    return;
  }
  const std::int64_t tasks = std::min<std::int64_t>(count, std::int64_t{threads()} * 4);
  pool_.parallel_for(static_cast<int>(tasks), [&](int task, int thread) {
    fn(count * task / tasks, count * (task + 1) / tasks, thread);
  });
}

}  // namespace tandem::kernels
