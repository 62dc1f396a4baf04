// Reuse changes nothing: a prompt that starts behind pages and a recurrent state of others gives the same
// bits of every logit that is sampled from as one that was computed whole.
#include <cstring>
#include <string>
#include <vector>

#include "tests/golden/golden_report.h"
#include "tests/support/catch.h"

namespace tandem_tests {
namespace {

using tandem::engine::kPageTokens;
using tandem::engine::LogitsFor;
using tandem::engine::PrefixMatch;
using tandem::engine::SequenceState;

constexpr int64_t kNewTokens = 40;  // past the next border of pages
constexpr int64_t kStates = 64;

using Bits = std::vector<std::vector<float>>;

bool same_bits(const Bits& a, const Bits& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) return false;
  }
  return true;
}

// Runs `tokens` behind what the sequence has, page by page, and gives all full ones to the tree.
void feed(ModelFixture& fixture, SequenceState& sequence, std::span<const int32_t> all, Bits* logits) {
  while (sequence.length() < static_cast<int64_t>(all.size())) {
    const int64_t end = std::min((sequence.length() / kPageTokens + 1) * kPageTokens,
                                 static_cast<int64_t>(all.size()));
    const auto part = all.subspan(static_cast<size_t>(sequence.length()),
                                  static_cast<size_t>(end - sequence.length()));
    const bool last = end == static_cast<int64_t>(all.size());
    const auto sink = [&](int64_t, std::span<const float> row) {
      if (logits != nullptr) logits->emplace_back(row.begin(), row.end());
    };
    REQUIRE(fixture.run(sequence, part, kPageTokens, last ? LogitsFor::last : LogitsFor::none, sink).ok());
    fixture.store->publish(sequence, all);
    if (sequence.length() % kPageTokens == 0) fixture.store->checkpoint(sequence, false);
  }
}

struct Answer {
  Bits logits;
  int64_t reused = 0;
};

Answer answer(ModelFixture& fixture, std::vector<int32_t> tokens, bool reuse) {
  auto sequence = fixture.store->create_sequence().value();
  Answer out;
  if (reuse) {
    const PrefixMatch match = fixture.store->find_prefix("", tokens);
    fixture.store->start_from(*sequence, "", match);
    out.reused = match.tokens;
  }
  feed(fixture, *sequence, tokens, &out.logits);
  while (static_cast<int64_t>(out.logits.size()) < kNewTokens) {
    tokens.push_back(argmax(out.logits.back()));
    feed(fixture, *sequence, tokens, &out.logits);
  }
  REQUIRE(fixture.store->check_integrity().ok());
  return out;
}

std::vector<int32_t> cut(const std::vector<int32_t>& text, size_t from, size_t count) {
  std::vector<int32_t> out;
  for (size_t i = 0; i < count; ++i) out.push_back(text[(from + i) % text.size()]);
  return out;
}

void check_reuse(const std::string& path, const std::vector<int32_t>& text) {
  auto plain = ModelFixture::open(path, {.context_tokens = 1024, .kv_tokens = 2048}).value();
  auto shape = plain->store->shape();
  auto fixture = ModelFixture::open(path, {.context_tokens = 1024,
                                           .kv_tokens = 8192,
                                           .prefixes = {.on = true,
                                                        .checkpoint_bytes = kStates * shape.recurrent_bytes,
                                                        .seed = 9}})
                     .value();
  const std::vector<int32_t> first = cut(text, 0, 300);
  std::vector<int32_t> changed = cut(text, 0, 210);
  for (const int32_t token : cut(text, 40, 90)) changed.push_back(token);
  (void)answer(*fixture, first, true);
  for (const auto& prompt : {first, changed, cut(text, 0, 289), cut(text, 0, 321)}) {
    INFO("prompt of " << prompt.size());
    const Answer whole = answer(*plain, prompt, false);
    const Answer reused = answer(*fixture, prompt, true);
    CHECK(reused.reused >= 192);
    CHECK(same_bits(whole.logits, reused.logits));
  }
}

TEST_CASE("reuse: tiny hybrid") {
  const auto golden = read_golden("tiny-hybrid-logits.json").value();
  std::vector<int32_t> text;
  for (const auto& one : golden.find("cases")->as_array()) {
    for (const int32_t id : golden_ids(*one.find("ids"))) text.push_back(id);
  }
  check_reuse(source_path("tests/models/tiny-hybrid-q8_0.gguf"), text);
}

TEST_CASE("reuse: smollm2-135m") {
  const std::string path = cached_model("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (skip_without(path, "SmolLM2-135M-Instruct.Q4_1.gguf")) return;
  const auto golden = read_golden("smollm2-135m.json").value();
  check_reuse(path, golden_ids(*golden.find("passage")->find("ids")));
}

TEST_CASE("reuse: qwen2.5-coder-0.5b") {
  const std::string path = cached_model("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
  if (skip_without(path, "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")) return;
  const auto golden = read_golden("qwen2.5-coder-0.5b.json").value();
  check_reuse(path, golden_ids(*golden.find("passage")->find("ids")));
}

}  // namespace
}  // namespace tandem_tests
