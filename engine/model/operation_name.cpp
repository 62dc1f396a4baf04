#include "engine/model/operation_name.h"

namespace tandem::engine {
namespace {

const char* buffer_name(Buffer buffer) {
  switch (buffer) {
    case Buffer::residual: return "residual";
    case Buffer::normed: return "normed";
    case Buffer::query: return "query";
    case Buffer::key: return "key";
    case Buffer::value: return "value";
    case Buffer::mixed: return "mixed";
    case Buffer::conv_in: return "conv_in";
    case Buffer::conv_out: return "conv_out";
    case Buffer::delta_gate: return "delta_gate";
    case Buffer::alpha: return "alpha";
    case Buffer::beta: return "beta";
    case Buffer::ff_gate: return "ff_gate";
    case Buffer::ff_up: return "ff_up";
    case Buffer::head_input: return "head_input";
    case Buffer::logits: return "logits";
  }
  return "unknown";
}

struct Namer {
  std::string operator()(const EmbedOp&) const { return "embed"; }
  std::string operator()(const AnglesOp&) const { return "rope angles"; }
  std::string operator()(const NormOp& op) const {
    return std::string("norm ") + buffer_name(op.in);
  }
  std::string operator()(const ProjectOp& op) const {
    std::string name = std::string("project ") + buffer_name(op.in) + " to";
    for (const Projection& projection : op.outputs) {
      name += std::string(" ") + buffer_name(projection.out);
    }
    return name;
  }
  std::string operator()(const HeadNormOp& op) const {
    return std::string("norm heads of ") + buffer_name(op.heads.buffer);
  }
  std::string operator()(const RopeOp& op) const {
    return std::string("rope ") + buffer_name(op.heads.buffer);
  }
  std::string operator()(const KvWriteOp&) const { return "kv write"; }
  std::string operator()(const AttentionOp&) const { return "attention"; }
  std::string operator()(const AttentionGateOp&) const { return "attention gate"; }
  std::string operator()(const ConvOp&) const { return "delta convolution"; }
  std::string operator()(const DeltaOp&) const { return "delta recurrence"; }
  std::string operator()(const DeltaNormOp&) const { return "delta norm"; }
  std::string operator()(const SwiGluOp&) const { return "swiglu"; }
  std::string operator()(const HeadInputOp&) const { return "head input"; }
  std::string operator()(const HeadSliceOp& op) const {
    return "head rows " + std::to_string(op.row_begin) + " to " + std::to_string(op.row_end);
  }
};

}  // namespace

std::string name_of(const OperationBody& operation) { return std::visit(Namer(), operation); }

}  // namespace tandem::engine
