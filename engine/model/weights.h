// Binds the tensors of a GGUF file to a family's needs: by name, with the exact shape and a type
// that the kernels compute, and keeps a note of which tensors were bound. A tensor that nobody
// asked for is an error, because leaving it out would change the model's function silently.
// Matrices and vectors are views into the file's mapping. Used while loading, by one thread.
//
// Errors: not_found (missing), corrupt (shape, with both shapes), invalid_argument (type).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/gguf/gguf.h"
#include "kernels/dtype.h"

namespace tandem::engine {

class TensorBinder {
 public:
  explicit TensorBinder(const GgufFile& file);

  [[nodiscard]] bool has(std::string_view name) const;
  // dims are GGUF order: {in, out}.
  Result<kernels::WeightView> matrix(const std::string& name, int64_t in, int64_t out);
  // F32 only; dims in GGUF order.
  Result<std::span<const float>> floats(const std::string& name,
                                        std::initializer_list<int64_t> dims);
  // Empty when the tensor is missing.
  Result<std::span<const float>> floats_or_none(const std::string& name,
                                                std::initializer_list<int64_t> dims);
  // invalid_argument, naming some of them, when tensors were left unbound.
  [[nodiscard]] Result<void> check_all_bound() const;

 private:
  Result<const GgufTensor*> find(const std::string& name, std::initializer_list<int64_t> dims);

  const GgufFile& file_;
  std::vector<bool> bound_;  // [tensors of the file]
};

}  // namespace tandem::engine
