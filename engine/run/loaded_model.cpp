#include "engine/run/loaded_model.h"

#include <sched.h>

#include <algorithm>

#include "base/log.h"
#include "engine/run/answer_mask.h"
#include "engine/run/batch.h"
#include "kernels/isa.h"
#include "policies/family_guess.h"

namespace tandem::engine {
namespace {

// Cores that this process may use, not those of the machine.
int64_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

int64_t threads_of(const EngineOptions& options) {
  return options.threads > 0 ? options.threads : usable_cores();
}

constexpr auto kMaskBytes = static_cast<int64_t>(MaskScratch::kCacheBytes);

StepLimits step_limits_from(const EngineOptions& options) {
  const BatchLimits defaults;
  StepLimits limits;
  limits.rows_max = std::max(options.batch_tokens, options.slots + LoadedModel::kChunkTokens);
  limits.logit_rows_max = options.slots + defaults.scored_chunk_tokens;
  limits.items_max = options.slots;
  return limits;
}

int64_t scratch_bytes(const Model& model, const EngineOptions& options) {
  return threads_of(options) * static_cast<int64_t>(Step::scratch_bytes_per_thread(model));
}

// What the file says about itself is repeated to every client: bounded.
constexpr size_t kTextBytesMax = 256;
constexpr size_t kDefaultsMax = 64;

// general.sampling.*: the authors' defaults, told to the service, never applied here.
Json sampling_defaults(const GgufMetadata& metadata) {
  constexpr std::string_view kPrefix = "general.sampling.";
  Json defaults = Json::object();
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    if (!entry.key.starts_with(kPrefix)) continue;
    const std::string_view name = entry.key.substr(kPrefix.size());
    if (name.size() > kTextBytesMax || defaults.as_object().size() == kDefaultsMax) continue;
    if (const auto whole = entry.value.to_int()) {
      defaults.set(name, *whole);
    } else if (const auto real = entry.value.to_float()) {
      defaults.set(name, *real);
    }
  }
  return defaults;
}

std::string text_or_empty(const GgufMetadata& metadata, std::string_view key) {
  const auto value = metadata.get_string_or(key, "");
  return value.ok() ? std::string(value->substr(0, kTextBytesMax)) : std::string();
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> LoadedModel::load(GgufFile& file,
                                                       const EngineOptions& options,
                                                       const Clock& clock) {
  auto loaded = std::make_unique<LoadedModel>(Key{}, options);
  if (options.fail_tag) loaded->ledger.fail_next(*options.fail_tag);
  TRY_ASSIGN(loaded->text, ModelText::load(file.metadata(), clock));
  TRY_ASSIGN(const auto shapes, Model::load(file));  // its weights may not be there yet
  const auto tokens = static_cast<int64_t>(loaded->text->tokenizer().token_count());
  const int64_t rows = shapes->config().vocab;
  if (tokens > rows) {  // a token without an embedding could be asked for
    return make_error(Errc::corrupt, "the tokenizer has " + std::to_string(tokens) +
                                         " tokens, the embedding " + std::to_string(rows) +
                                         " rows");
  }
  loaded->step_limits = step_limits_from(options);
  TRY_ASSIGN(const budget::PlanInput input,
             plan_input(*shapes, loaded->text->memory_bytes(), options));
  log::info("memory plan: " + budget::plan_text(budget::make_plan(input)));
  if (options.memory_limit_bytes > 0) {
    TRY(budget::check_plan(input, options.memory_limit_bytes));
  }
  TRY(loaded->read_tensors(file, input, clock));
  TRY_ASSIGN(loaded->model, Model::load(file));
  TRY(loaded->allocate(options, input));
  loaded->fill_facts(file, options);
  return loaded;
}

// A crafted file with large options must be an error here and no broken promise to the plan.
Result<budget::PlanInput> LoadedModel::plan_input(const Model& model, int64_t tokenizer_bytes,
                                                  const EngineOptions& options) {
  const StateShape shape = model.state_shape(options.context_tokens);
  const int64_t full = PagePool::pages_for_tokens(shape.tokens_max) * shape.page_bytes;
  constexpr int64_t kTermBytesMax = int64_t{1} << 50;
  if (std::max(full, shape.recurrent_bytes) > kTermBytesMax / options.slots ||
      model.weight_bytes() > kTermBytesMax) {
    return make_error(Errc::too_large,
                      std::to_string(options.slots) + " slots of " + std::to_string(full) +
                          " bytes of kv and " + std::to_string(shape.recurrent_bytes) +
                          " bytes of state, weights of " +
                          std::to_string(model.weight_bytes()) + " bytes");
  }
  budget::PlanInput input;
  input.weights_bytes = model.weight_bytes();
  input.kv_bytes = options.kv_bytes > 0 ? options.kv_bytes : full * options.slots;
  input.kv_bytes_per_page = shape.page_bytes;
  input.recurrent_bytes_per_sequence = shape.recurrent_bytes;
  input.slots = options.slots;
  if (options.prefix_cache != 0) {
    input.checkpoint_bytes =
        budget::checkpoint_bytes(options.checkpoint_bytes, shape.recurrent_bytes);
  }
  input.workspace_bytes =
      Step::workspace_bytes(model, step_limits_from(options)) + scratch_bytes(model, options);
  input.mask_bytes = kMaskBytes;
  input.tokenizer_bytes = tokenizer_bytes;
  return input;
}

Result<void> LoadedModel::read_tensors(GgufFile& file, const budget::PlanInput& input,
                                       const Clock& clock) {
  ledger.set_limit(budget::Tag::weights, input.weights_bytes);
  TRY_ASSIGN(weights, ledger.reserve(budget::Tag::weights, input.weights_bytes));
  const bool mapped = file.load_mode() == LoadMode::mapped;
  weights_mapped_bytes = mapped ? input.weights_bytes : 0;
  const SteadyTime begun = clock.now();
  TRY(file.read_tensors());
  const double seconds = std::chrono::duration<double>(clock.now() - begun).count();
  std::string line = "weights: " + std::to_string(input.weights_bytes >> 20) + " MiB, " + file.load_note();
  if (!mapped) {
    const double rate = static_cast<double>(input.weights_bytes >> 20) / std::max(seconds, 1e-6);
    line += ", " + std::to_string(static_cast<int64_t>(seconds * 1000)) + " ms, " +
            std::to_string(static_cast<int64_t>(rate)) + " MiB/s";
  }
  log::info(line);
  return {};
}

Result<void> LoadedModel::allocate(const EngineOptions& options,
                                   const budget::PlanInput& input) {
  ledger.set_limit(budget::Tag::kv, input.kv_bytes);
  ledger.set_limit(budget::Tag::recurrent_state,
                   input.slots * input.recurrent_bytes_per_sequence);
  ledger.set_limit(budget::Tag::checkpoint, input.checkpoint_bytes);
  ledger.set_limit(budget::Tag::workspace, input.workspace_bytes + input.mask_bytes);
  ledger.set_limit(budget::Tag::tokenizer, input.tokenizer_bytes);
  const Commit commit = options.commit != 0 ? Commit::now : Commit::at_first_use;
  step_limits.commit = commit;
  TRY_ASSIGN(tokenizer, ledger.reserve(budget::Tag::tokenizer, input.tokenizer_bytes));
  const StateShape shape = model->state_shape(options.context_tokens);
  TRY_ASSIGN(store, StateStore::create(ledger, shape, input.kv_bytes, kExtentBytesDefault, commit,
                                       {.on = options.prefix_cache != 0,
                                        .checkpoint_bytes = input.checkpoint_bytes,
                                        .seed = options.hash_seed}));
  if (commit == Commit::now) TRY(store->keep_states(options.slots));
  TRY(make_scratch(options));
  TRY_ASSIGN(step, Step::create(*model, *store, *compute, ledger, step_limits));
  return {};
}

Result<void> LoadedModel::make_scratch(const EngineOptions& options) {
  TRY_ASSIGN(const kernels::Isa isa, kernels::isa_choose());
  TRY_ASSIGN(scratch, ledger.reserve(budget::Tag::workspace, scratch_bytes(*model, options)));
  TRY_ASSIGN(masks, ledger.reserve(budget::Tag::workspace, kMaskBytes));
  compute = std::make_unique<kernels::Compute>(
      kernels::ComputeOptions{.threads = static_cast<int>(threads_of(options)),
                              .isa = isa,
                              .scratch_bytes_per_thread = Step::scratch_bytes_per_thread(*model)});
  return {};
}

int64_t LoadedModel::mask_bytes() { return kMaskBytes; }

Result<budget::PlanInput> LoadedModel::plan_budgets(const Budgets& budgets) const {
  EngineOptions other = options_;
  other.kv_bytes = budgets.kv_bytes;
  other.slots = budgets.slots;
  other.batch_tokens = budgets.batch_tokens;
  TRY_ASSIGN(budget::PlanInput input, plan_input(*model, text->memory_bytes(), other));
  if (options_.memory_limit_bytes > 0) TRY(budget::check_plan(input, options_.memory_limit_bytes));
  return input;
}

void LoadedModel::fill_facts(const GgufFile& file, const EngineOptions& options) {
  const GgufMetadata& metadata = file.metadata();
  uint64_t parameters = 0;
  for (const GgufTensor& tensor : file.tensors()) parameters += tensor.elements();
  facts.architecture = text_or_empty(metadata, "general.architecture");
  facts.name = text_or_empty(metadata, "general.name");
  facts.file = file.path();
  facts.file_bytes = static_cast<int64_t>(file.file_bytes());
  facts.parameters = static_cast<int64_t>(parameters);
  facts.context_tokens_max = store->shape().tokens_max;
  facts.slots = options.slots;
  facts.vocab_size = static_cast<int64_t>(text->tokenizer().token_count());
  facts.weights_bytes = model->weight_bytes();
  facts.kv_bytes = store->pool().bytes();
  facts.kv_bytes_per_token = model->kv_bytes_per_token();
  facts.state_bytes_per_sequence = model->recurrent_bytes_per_sequence();
  facts.has_chat_template = text->has_chat_template();
  facts.family = policies::guess_family({.architecture = facts.architecture,
                                         .name = facts.name,
                                         .chat_template = text->template_source()});
  facts.has_draft_block = model->config().draft_blocks > 0;
  facts.isa = kernels::isa_name(compute->isa());
  facts.threads = compute->threads();
  facts.sampling = sampling_defaults(metadata);
}

}  // namespace tandem::engine
