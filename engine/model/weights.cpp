#include "engine/model/weights.h"

#include <algorithm>

namespace tandem::engine {
namespace {

std::string shape_text(std::initializer_list<int64_t> dims) {
  std::string text = "[";
  for (const int64_t dim : dims) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(dim);
  }
  return text + "]";
}

}  // namespace

TensorBinder::TensorBinder(const GgufFile& file)
    : file_(file), bound_(file.tensors().size(), false) {}

bool TensorBinder::has(std::string_view name) const { return file_.find_tensor(name) != nullptr; }

Result<const GgufTensor*> TensorBinder::find(const std::string& name,
                                             std::initializer_list<int64_t> dims) {
  const GgufTensor* tensor = file_.find_tensor(name);
  if (tensor == nullptr) {
    return make_error(Errc::not_found,
                      "tensor " + name + " " + shape_text(dims) + " is missing from the file");
  }
  bool same = true;
  size_t i = 0;
  for (const int64_t dim : dims) same = same && tensor->dims[i++] == static_cast<uint64_t>(dim);
  for (; i < tensor->dims.size(); ++i) same = same && tensor->dims[i] == 1;
  if (!same) {
    return make_error(Errc::corrupt, "tensor " + tensor->describe() + ": the model needs " +
                                         shape_text(dims));
  }
  bound_[static_cast<size_t>(tensor - file_.tensors().data())] = true;
  return tensor;
}

Result<kernels::WeightView> TensorBinder::matrix(const std::string& name, int64_t in,
                                                 int64_t out) {
  TRY_ASSIGN(const GgufTensor* tensor, find(name, {in, out}));
  const auto type = kernels::dtype_from_gguf(static_cast<uint32_t>(tensor->type));
  if (!type.has_value()) {
    return make_error(Errc::invalid_argument,
                      "tensor " + tensor->describe() + ": this type has no kernels");
  }
  const kernels::WeightView view = {
      .type = *type, .data = tensor->bytes.data(), .rows = out, .width = in};
  CHECK(kernels::weight_bytes(view) == static_cast<int64_t>(tensor->bytes.size()));
  return view;
}

Result<std::span<const float>> TensorBinder::floats(const std::string& name,
                                                    std::initializer_list<int64_t> dims) {
  TRY_ASSIGN(const GgufTensor* tensor, find(name, dims));
  if (tensor->type != GgmlType::kF32) {
    return make_error(Errc::invalid_argument, "tensor " + tensor->describe() + " must be F32");
  }
  return std::span<const float>(reinterpret_cast<const float*>(tensor->bytes.data()),
                                static_cast<size_t>(tensor->elements()));
}

Result<std::span<const float>> TensorBinder::floats_or_none(const std::string& name,
                                                            std::initializer_list<int64_t> dims) {
  if (!has(name)) return std::span<const float>();
  return floats(name, dims);
}

Result<void> TensorBinder::check_all_bound() const {
  std::string names;
  int64_t count = 0;
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (bound_[i]) continue;
    if (++count <= 3) names += (count > 1 ? ", " : "") + file_.tensors()[i].describe();
  }
  if (count == 0) return {};
  return make_error(Errc::invalid_argument,
                    std::to_string(count) + " tensors are unknown to the family: " + names +
                        (count > 3 ? ", ..." : ""));
}

}  // namespace tandem::engine
