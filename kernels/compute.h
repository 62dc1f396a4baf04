// What every operation runs on: a thread pool, the instruction set level, and one scratch block per
// thread. One owner (the engine's loop); made once at start, after its bytes were reserved.
//
//   TRY_ASSIGN(Isa isa, isa_choose());
//   Compute compute({.threads = 2, .isa = isa, .scratch_bytes_per_thread = matmul_scratch_bytes(widest)});
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/isa.h"
#include "kernels/thread_pool.h"

namespace tandem::kernels {

struct KernelTable;  // kernels/simd/table.h: the single-threaded inner loops of one level

struct ComputeOptions {
  int threads = 1;
  Isa isa = Isa::portable;                     // must be supported here
  std::size_t scratch_bytes_per_thread = 0;  // at least matmul_scratch_bytes() of the widest weight
};

class Compute {
 public:
  explicit Compute(const ComputeOptions& options);
  ~Compute();
  Compute(const Compute&) = delete;
  Compute& operator=(const Compute&) = delete;

  [[nodiscard]] ThreadPool& pool() noexcept { return pool_; }
  [[nodiscard]] int threads() const noexcept { return pool_.threads(); }
  [[nodiscard]] Isa isa() const noexcept { return isa_; }
  [[nodiscard]] const KernelTable& table() const noexcept { return table_; }
  [[nodiscard]] std::span<std::byte> scratch(int thread) noexcept;  // 64-byte aligned

  // Runs fn(begin, end, thread) over [0, count), cut into a few ranges per thread. When the whole work
  // (count x cost_each_ns) is below a few microseconds the caller does all of it: joining costs more.
  void split(std::int64_t count, double cost_each_ns,
             FunctionRef<void(std::int64_t begin, std::int64_t end, int thread)> fn);

 private:
  struct AlignedFree {
    void operator()(std::byte* bytes) const noexcept;
  };

  const Isa isa_;
  const KernelTable& table_;
  const std::size_t scratch_bytes_;
  std::unique_ptr<std::byte[], AlignedFree> scratch_;
  ThreadPool pool_;
};

}  // namespace tandem::kernels
