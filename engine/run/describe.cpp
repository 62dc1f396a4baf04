#include "engine/run/describe.h"

#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/run/loaded_model.h"
#include "engine/run/model_text.h"

namespace tandem::engine {
namespace {

constexpr int64_t kFormat = 1;
// What the file says about itself is bounded, or a crafted header would become a huge answer.
constexpr size_t kKeysMax = 512;
constexpr size_t kTextBytesMax = 256;
constexpr size_t kArrayElementsMax = 4096;
constexpr size_t kBlocksMax = 4096;

Json array_to_json(const GgufArray& array) {
  Json out = Json::array();
  for (size_t i = 0; i < array.size(); ++i) {
    if (const auto whole = array.int_at(i)) {
      out.push_back(*whole);
    } else if (const auto real = array.float_at(i)) {
      out.push_back(*real);
    } else {
      return nullptr;  // strings: of no use to a plan
    }
  }
  return out;
}

Json value_to_json(const GgufValue& value) {
  if (value.type == GgufValueType::array) {
    return value.array.size() <= kArrayElementsMax ? array_to_json(value.array) : Json();
  }
  if (value.type == GgufValueType::string) return value.text.substr(0, kTextBytesMax);
  if (value.type == GgufValueType::boolean) return value.to_bool().value_or(false);
  if (const auto whole = value.to_int()) return *whole;
  if (const auto real = value.to_float()) return *real;
  return nullptr;
}

// All keys of the architecture, and the split's.
Json keys_to_json(const GgufMetadata& metadata, const std::string& architecture) {
  Json keys = Json::object();
  const std::string prefix = architecture + ".";
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    if (!entry.key.starts_with(prefix) || entry.key.size() > kTextBytesMax) continue;
    Json value = value_to_json(entry.value);
    if (value.is_null()) continue;
    if (keys.as_object().size() == kKeysMax) break;
    keys.set(entry.key.substr(prefix.size()), std::move(value));
  }
  return keys;
}

Json strings_to_json(const GgufMetadata& metadata, std::string_view key) {
  uint64_t bytes = 0;
  size_t count = 0;
  const GgufValue* value = metadata.find(key);
  if (value != nullptr && value->type == GgufValueType::array &&
      value->array.element_type() == GgufValueType::string) {
    count = value->array.size();
    bytes = value->array.bytes().size() - count * sizeof(uint64_t);
  }
  return Json::object({{"count", static_cast<int64_t>(count)},
                       {"bytes", static_cast<int64_t>(bytes)}});
}

Json tokenizer_to_json(const GgufMetadata& metadata) {
  const auto model = metadata.get_string_or("tokenizer.ggml.model", "");
  return Json::object({{"model", model.ok() ? model->substr(0, kTextBytesMax) : ""},
                       {"tokens", strings_to_json(metadata, "tokenizer.ggml.tokens")},
                       {"merges", strings_to_json(metadata, "tokenizer.ggml.merges")}});
}

Json dims_to_json(const GgufTensor* tensor) {
  Json dims = Json::array();
  if (tensor == nullptr) return dims;
  for (uint32_t i = 0; i < tensor->dim_count; ++i) dims.push_back(Json(tensor->dims[i]));
  return dims;
}

// "blk.12.attn_q.weight": 12; nothing for other names.
std::optional<size_t> block_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  size_t block = 0;
  size_t at = kPrefix.size();
  for (; at < name.size() && name[at] >= '0' && name[at] <= '9'; ++at) {
    block = block * 10 + static_cast<size_t>(name[at] - '0');
    if (block >= kBlocksMax) return std::nullopt;
  }
  if (at == kPrefix.size() || at == name.size() || name[at] != '.') return std::nullopt;
  return block;
}

Json tensors_to_json(const GgufFile& file) {
  std::map<std::string, int64_t> by_type;
  std::vector<int64_t> blocks;
  uint64_t parameters = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    const auto bytes = static_cast<int64_t>(tensor.byte_count);
    by_type[ggml_type_info(tensor.type).name] += bytes;
    parameters += tensor.elements();
    if (const auto block = block_of(tensor.name)) {
      if (blocks.size() <= *block) blocks.resize(*block + 1);
      blocks[*block] += bytes;
    }
  }
  Json types = Json::object();
  for (const auto& [name, bytes] : by_type) types.set(name, bytes);
  Json block_bytes = Json::array();
  for (const int64_t bytes : blocks) block_bytes.push_back(bytes);
  return Json::object({{"count", static_cast<int64_t>(file.tensors().size())},
                       {"bytes", static_cast<int64_t>(file.tensor_bytes())},
                       {"parameters", Json(parameters)},
                       {"bytes_by_type", std::move(types)},
                       {"bytes_by_block", std::move(block_bytes)},
                       {"embedding", dims_to_json(file.find_tensor("token_embd.weight"))}});
}

Result<Json> own_figures(const GgufFile& file, int64_t tokenizer_bytes,
                         const EngineOptions& options) {
  TRY_ASSIGN(const auto model, Model::load(file));
  TRY_ASSIGN(const budget::PlanInput input,
             LoadedModel::plan_input(*model, tokenizer_bytes, options));
  return Json::object({{"page_tokens", kPageTokens},
                       {"page_bytes", input.kv_bytes_per_page},
                       {"recurrent_bytes", input.recurrent_bytes_per_sequence},
                       {"workspace_bytes", input.workspace_bytes},
                       {"mask_bytes", input.mask_bytes},
                       {"tokenizer_bytes", input.tokenizer_bytes}});
}

// A file without a tokenizer cannot be served, but its figures are as exact as any other's.
Json engine_to_json(const GgufFile& file, const EngineOptions& options) {
  const SystemClock clock;
  const auto text = ModelText::load(file.metadata(), clock);
  const auto tokenizer_bytes =
      text.ok() ? (*text)->memory_bytes() : 0;
  auto figures = own_figures(file, tokenizer_bytes, options);
  Json engine = Json::object({{"runs", text.ok() && figures.ok()}});
  if (!figures.ok()) {
    engine.set("why", figures.error().message);
  } else if (!text.ok()) {
    engine.set("why", text.error().message);
  }
  engine.set("figures", figures.ok() ? std::move(figures).value() : Json());
  return engine;
}

// Of tensors whose data the file does not have.
uint64_t absent_bytes(const GgufFile& file) {
  uint64_t sum = 0;
  for (const GgufTensor& tensor : file.tensors()) sum += tensor.byte_count - tensor.bytes.size();
  return sum;
}

// Our own figures come from a model that is opened as for serving: not from such a file.
Json absent_to_json(uint64_t absent) {
  return Json::object({{"runs", false},
                       {"why", std::to_string(absent) + " bytes of its tensors' data are absent"},
                       {"figures", Json()}});
}

std::string string_key(const GgufMetadata& metadata, std::string_view key) {
  const auto value = metadata.get_string_or(key, "");
  return value.ok() ? std::string(value->substr(0, kTextBytesMax)) : std::string();
}

}  // namespace

Result<Json> describe_model(const EngineOptions& options) {
  TRY_ASSIGN(const GgufFile file,
             GgufFile::open(options.describe, {.limits = {.data_may_be_absent = true}}));
  const uint64_t absent = absent_bytes(file);
  const GgufMetadata& metadata = file.metadata();
  const std::string architecture = string_key(metadata, "general.architecture");
  return Json::object({{"format", kFormat},
                       {"architecture", architecture},
                       {"name", string_key(metadata, "general.name")},
                       {"file", file.path()},
                       {"file_bytes", static_cast<int64_t>(file.file_bytes() + absent)},
                       {"parts", static_cast<int64_t>(file.part_count())},
                       {"identity", file.identity()},
                       {"keys", keys_to_json(metadata, architecture)},
                       {"tokenizer", tokenizer_to_json(metadata)},
                       {"tensors", tensors_to_json(file)},
                       {"engine", absent > 0 ? absent_to_json(absent) : engine_to_json(file, options)}});
}

int run_describe(const EngineOptions& options) {
  const auto described = describe_model(options);
  const Json answer =
      described.ok()
          ? *described
          : Json::object({{"error", Json::object({{"code", errc_name(described.error().code)},
                                                  {"message", described.error().message}})}});
  const std::string text = answer.dump() + "\n";
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
                       std::fflush(stdout) == 0;
  return described.ok() && written ? 0 : 1;
}

}  // namespace tandem::engine
