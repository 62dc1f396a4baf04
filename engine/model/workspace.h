// The memory of a step: one arena under one reservation, cut into the buffers of operation.h and
// what the kernels need beside them. Its size follows from the model and the limits, before
// anything exists. Buffers of the mixers and of the feed-forward part are never alive together, so
// they share bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "engine/kv/budgeted_memory.h"
#include "engine/model/config.h"
#include "engine/model/operation.h"
#include "engine/model/step.h"

namespace tandem::engine {

struct WorkspaceLayout {
  struct Place {
    int64_t offset = 0;  // bytes
    int64_t stride = 0;  // floats from row to row
  };
  std::array<Place, kBufferCount> buffers;
  int64_t angles = 0;            // offset; [rows][rope dims]
  int64_t activations = 0;       // offset; 8-bit form of one product's input
  int64_t activation_bytes = 0;
  int64_t head_activations = 0;  // offset; lives over all head slices
  int64_t head_activation_bytes = 0;
  int64_t bytes = 0;
};

WorkspaceLayout make_workspace_layout(const ModelConfig& config, const StepLimits& limits);

class Workspace {
 public:
  static Result<Workspace> create(budget::Ledger& ledger, const WorkspaceLayout& layout,
                                  Commit commit);
  // Another layout; what the buffers held is lost. Refused, it is as before.
  Result<void> resize(const WorkspaceLayout& layout);
  [[nodiscard]] int64_t untouched_bytes() const {
    return memory_.bytes() - memory_.resident_bytes();
  }

  [[nodiscard]] float* rows(Buffer buffer) const {
    return reinterpret_cast<float*>(memory_.data() + place(buffer).offset);
  }
  [[nodiscard]] int64_t stride(Buffer buffer) const { return place(buffer).stride; }
  [[nodiscard]] float* angles() const {
    return reinterpret_cast<float*>(memory_.data() + layout_.angles);
  }
  [[nodiscard]] std::span<std::byte> activations() const {
    return {memory_.data() + layout_.activations, static_cast<size_t>(layout_.activation_bytes)};
  }
  [[nodiscard]] std::span<std::byte> head_activations() const {
    return {memory_.data() + layout_.head_activations,
            static_cast<size_t>(layout_.head_activation_bytes)};
  }

 private:
  Workspace(const WorkspaceLayout& layout, BudgetedMemory memory)
      : layout_(layout), memory_(std::move(memory)) {}
  [[nodiscard]] const WorkspaceLayout::Place& place(Buffer buffer) const {
    return layout_.buffers[static_cast<size_t>(buffer)];
  }

  WorkspaceLayout layout_;
  BudgetedMemory memory_;
};

}  // namespace tandem::engine
