#include "memory_budget/plan_model.h"

#include <algorithm>

namespace tandem::budget {
namespace {

constexpr int64_t kBytesMax = kShapeBytesMax;
constexpr int64_t kKvBytesMax = int64_t{1} << 50;
constexpr int64_t kSlotsMax = 1024;
constexpr int64_t kContextMax = 1 << 24;
constexpr int64_t kBatchMax = 1 << 16;
constexpr int64_t kDraftMax = 64;

// As our engine's step limits: a step holds the decodes and at least one block of a prompt; a block
// of a scored prompt wants logits in every row.
constexpr int64_t kBlockTokens = 32;
constexpr int64_t kFloatBytes = 4;
constexpr int64_t kWholeKvStep = int64_t{1} << 20;
// Two buffers of the weights' loader, which reads past the page cache.
constexpr int64_t kLoadBuffers = int64_t{16} << 20;

// Sums and products that stop at the cap instead of overflowing; a term at the cap is an error.
int64_t capped_product(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return kBytesMax;
  return std::min(product, kBytesMax);
}
int64_t capped_sum(int64_t a, int64_t b) { return std::min(a + b, kBytesMax); }

int64_t whole(int64_t bytes, int64_t unit) { return bytes / unit * unit; }
int64_t pages_of(int64_t tokens) { return (tokens + kShapePageTokens - 1) / kShapePageTokens; }

Result<void> check_range(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return {};
  return make_error(Errc::invalid_argument,
                    std::string(name) + " is " + std::to_string(value) + ", allowed are " +
                        std::to_string(least) + " to " + std::to_string(most),
                    name);
}

bool drafts(const ModelShape& shape, const ModelSettings& settings) {
  return shape.draft_blocks > 0 && settings.draft_tokens > 0;
}

// Of an engine that takes its budget as it is.
void plan_whole_kv(const ModelSettings& settings, ModelPlan& plan) {
  plan.kv_page_bytes = kWholeKvStep;
  plan.kv_useful_bytes = settings.kv_bytes;
  plan.kv_parts = {{"kv_full", settings.kv_bytes}};
  if (settings.kv_bytes > 0) return;
  plan.problem = "without a KV budget the engine takes a share of the whole box";
}

// The KV budget: windows of the sliding layers for all slots, the rest in pages of the full layers
// (and of the draft blocks, which keep every token as well).
Result<void> plan_kv(const ModelShape& shape, const ModelSettings& settings, ModelPlan& plan) {
  if (shape.foreign.has_value() && shape.foreign->whole_cache) {
    plan_whole_kv(settings, plan);
    return {};
  }
  const int64_t context = std::min(settings.context_tokens, shape.context_tokens);
  const int64_t draft = drafts(shape, settings) ? shape.draft_bytes_per_token : 0;
  const int64_t full = shape.full_bytes_per_token;
  if (full + shape.sliding_bytes_per_token == 0) {
    return make_error(Errc::corrupt, "no layer keeps keys and values");
  }
  if (shape.window_tokens > 0) {
    const int64_t ring =
        sliding_ring_tokens(shape.window_tokens, settings.batch_tokens, context);
    plan.kv_fixed_bytes =
        capped_product(capped_product(ring, shape.sliding_bytes_per_token), settings.slots);
  }
  plan.kv_page_bytes = shape.engine.has_value() ? shape.engine->page_bytes + draft * kShapePageTokens
                                                : (full + draft) * kShapePageTokens;
  if (plan.kv_page_bytes == 0) plan.kv_page_bytes = shape.sliding_bytes_per_token * kShapePageTokens;
  plan.kv_useful_bytes = capped_sum(
      plan.kv_fixed_bytes,
      capped_product(capped_product(pages_of(context), plan.kv_page_bytes), settings.slots));

  int64_t budget = settings.kv_bytes > 0 ? settings.kv_bytes : plan.kv_useful_bytes;
  // It gives no slot more than its context.
  if (shape.foreign.has_value()) budget = std::min(budget, plan.kv_useful_bytes);
  if (budget < plan.kv_least_bytes()) {
    plan.problem = "a KV budget of " + std::to_string(budget) + " bytes cannot serve: " +
                   std::to_string(settings.slots) + " slots need " +
                   std::to_string(plan.kv_least_bytes()) + " at least";
  }
  const int64_t paged = whole(std::max<int64_t>(budget - plan.kv_fixed_bytes, 0), plan.kv_page_bytes);
  const int64_t draft_part = paged / plan.kv_page_bytes * draft * kShapePageTokens;
  plan.kv_parts = {{"kv_full", paged - draft_part},
                   {"kv_sliding", plan.kv_fixed_bytes},
                   {"kv_draft", draft_part}};
  return {};
}

// Verifying k drafts needs the state before each of them and after the last: it cannot be rewound.
int64_t draft_bytes(const ModelShape& shape, const ModelSettings& settings) {
  const int64_t states =
      drafts(shape, settings)
          ? capped_product(capped_product(settings.slots, settings.draft_tokens + 1),
                           shape.recurrent_bytes)
          : 0;
  return capped_sum(shape.draft_weight_bytes, states);
}

int64_t workspace_bytes(const ModelShape& shape, const ModelSettings& settings) {
  if (shape.foreign.has_value() && shape.foreign->workspace_bytes > 0) return shape.foreign->workspace_bytes;
  if (shape.engine.has_value()) return shape.engine->workspace_bytes;
  const int64_t rows = std::max(settings.batch_tokens, settings.slots + kBlockTokens);
  const int64_t logit_rows = settings.slots + kBlockTokens;
  return capped_sum(capped_product(rows, shape.row_floats * kFloatBytes),
                    capped_product(logit_rows, shape.logit_row_floats * kFloatBytes));
}

// As our tokenizer's tables: the tokens' text, offset, kind and order, and a hash of the merges.
int64_t tokenizer_bytes(const ModelShape& shape) {
  if (shape.engine.has_value() && shape.engine->tokenizer_bytes > 0) {
    return shape.engine->tokenizer_bytes;
  }
  constexpr int64_t kTokenBytes = 10;
  constexpr int64_t kMergeSlotBytes = 16;
  int64_t slots = shape.merges > 0 ? 1 : 0;
  while (slots * 3 < shape.merges * 4) slots *= 2;
  return shape.token_text_bytes + shape.tokens * kTokenBytes + slots * kMergeSlotBytes;
}

Result<void> check_terms(const std::vector<PlanTerm>& terms) {
  for (const PlanTerm& term : terms) {
    if (term.bytes >= kBytesMax) {
      return make_error(Errc::too_large, "term " + term.name + " has more than 2^56 bytes", term.name);
    }
  }
  return {};
}

}  // namespace

Result<void> check_settings(const ModelSettings& settings) {
  TRY(check_range("kv", settings.kv_bytes, 0, kKvBytesMax));
  TRY(check_range("slots", settings.slots, 1, kSlotsMax));
  TRY(check_range("context_tokens", settings.context_tokens, 1, kContextMax));
  TRY(check_range("batch_tokens", settings.batch_tokens, 1, kBatchMax));
  TRY(check_range("checkpoints", settings.checkpoint_bytes, 0, kKvBytesMax));
  return check_range("draft_tokens", settings.draft_tokens, 0, kDraftMax);
}

int64_t ModelPlan::peak_bytes() const {
  return std::max({steady_bytes, load_peak_bytes, post_load_peak_bytes});
}

int64_t ModelPlan::term(std::string_view name) const {
  for (const auto* list : {&terms, &kv_parts}) {
    for (const PlanTerm& item : *list) {
      if (item.name == name) return item.bytes;
    }
  }
  return 0;
}

int64_t sliding_ring_tokens(int64_t window_tokens, int64_t chunk_tokens, int64_t context_tokens) {
  const int64_t tokens = std::min(window_tokens + chunk_tokens - 1, context_tokens);
  return pages_of(tokens) * kShapePageTokens;
}

Result<ModelPlan> plan_model(const ModelShape& shape, const ModelSettings& settings) {
  TRY(check_settings(settings));
  ModelPlan plan;
  TRY(plan_kv(shape, settings, plan));
  TRY(check_terms(plan.kv_parts));
  int64_t kv = 0;
  for (const PlanTerm& part : plan.kv_parts) kv = capped_sum(kv, part.bytes);
  const int64_t recurrent =
      shape.engine.has_value() ? shape.engine->recurrent_bytes : shape.recurrent_bytes;
  const int64_t header = std::max<int64_t>(shape.file_bytes - shape.weight_bytes, 0);
  const int64_t host = capped_sum(kHostBytes, header);
  plan.terms = {
      {"weights", shape.weight_bytes - shape.draft_weight_bytes},
      {"kv", kv},
      {"recurrent_state", capped_product(recurrent, settings.slots)},
      {"checkpoints", settings.prefix_cache
                          ? checkpoint_bytes(settings.checkpoint_bytes, recurrent)
                          : 0},
      {"draft_head", draft_bytes(shape, settings)},
      {"workspace", workspace_bytes(shape, settings)},
      {"masks", shape.engine.has_value() ? shape.engine->mask_bytes : 0},
      {"graphs", 0},  // operations are launched one by one: nothing is captured
      {"tokenizer", tokenizer_bytes(shape)},
      {"host", host},
  };
  TRY(check_terms(plan.terms));
  for (const PlanTerm& term : plan.terms) plan.steady_bytes = capped_sum(plan.steady_bytes, term.bytes);
  plan.load_peak_bytes = shape.weight_bytes + plan.term("tokenizer") + host + kLoadBuffers;
  if (shape.foreign.has_value()) {
    plan.load_peak_bytes = std::max(plan.load_peak_bytes, shape.foreign->load_peak_bytes);
  }
  plan.post_load_peak_bytes = plan.steady_bytes;
  TRY(check_terms({{"steady", plan.steady_bytes}, {"load_peak", plan.load_peak_bytes}}));
  return plan;
}

}  // namespace tandem::budget
