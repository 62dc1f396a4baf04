// Batching changes nothing: the same prompts alone, with other chunk borders, in a batch of eight
// with neighbours that come and are cancelled, and with steps that stop after every operation, give
// the same greedy tokens - and the same bits of every logit that was sampled from.
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/golden/golden_report.h"
#include "tests/support/catch.h"

namespace tandem_tests {
namespace {

using tandem::engine::chunk_end;
using tandem::engine::LogitsFor;
using tandem::engine::SequenceState;
using tandem::engine::Step;
using tandem::engine::StepItem;

constexpr size_t kNewTokens = 12;

// Bits, not values: -0.0 and 0.0 differ here.
uint64_t fingerprint(std::span<const float> logits) {
  uint64_t hash = 1469598103934665603U;
  for (const float value : logits) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    hash = (hash ^ bits) * 1099511628211U;
  }
  return hash;
}

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<uint64_t> fingerprints;
  void take(std::span<const float> logits) {
    tokens.push_back(argmax(logits));
    fingerprints.push_back(fingerprint(logits));
  }
  bool operator==(const Answer&) const = default;
};

Answer alone(ModelFixture& fixture, std::span<const int32_t> prompt, int64_t chunk_tokens) {
  auto sequence = fixture.store->create_sequence().value();
  Answer answer;
  const auto sink = [&](int64_t, std::span<const float> logits) { answer.take(logits); };
  REQUIRE(fixture.run(*sequence, prompt, chunk_tokens, LogitsFor::last, sink).ok());
  while (answer.tokens.size() < kNewTokens) {
    const int32_t last = answer.tokens.back();
    REQUIRE(fixture.run(*sequence, {&last, 1}, chunk_tokens, LogitsFor::last, sink).ok());
  }
  return answer;
}

// One request of the small batch loop below.
struct Request {
  std::vector<int32_t> prompt;
  size_t starts_at_step = 0;
  size_t cancelled_at_step = SIZE_MAX;
  std::unique_ptr<SequenceState> sequence;
  Answer answer;
  size_t fed = 0;
  std::vector<int32_t> next;  // this step's tokens

  [[nodiscard]] bool done() const { return answer.tokens.size() >= kNewTokens; }
};

// All decodes and at most one prefill chunk a step, as the engine's loop does.
void run_batch(ModelFixture& fixture, std::vector<Request>& requests, int64_t chunk_tokens) {
  for (size_t step = 0;; ++step) {
    std::vector<StepItem> items;
    std::vector<Request*> owners;
    bool prefill_taken = false;
    bool waiting = false;
    for (Request& request : requests) {
      if (step >= request.cancelled_at_step) request.sequence.reset();
      if (step >= request.cancelled_at_step || request.done()) continue;
      waiting = true;
      if (step < request.starts_at_step) continue;
      if (!request.sequence) request.sequence = fixture.store->create_sequence().value();
      const size_t left = request.prompt.size() - request.fed;
      if (left > 0) {
        if (prefill_taken) continue;
        prefill_taken = true;
        const int64_t position = request.sequence->length();
        const auto room = static_cast<size_t>(chunk_end(position, chunk_tokens) - position);
        const auto from = request.prompt.begin() + static_cast<std::ptrdiff_t>(request.fed);
        const size_t count = std::min(left, room);
        request.next.assign(from, from + static_cast<std::ptrdiff_t>(count));
        request.fed += count;
      } else {
        request.next.assign(1, request.answer.tokens.back());
      }
      const bool wants = request.fed == request.prompt.size();
      items.push_back({request.sequence.get(), request.next,
                       wants ? LogitsFor::last : LogitsFor::none});
      owners.push_back(&request);
    }
    if (!waiting) return;
    if (items.empty()) continue;
    REQUIRE(fixture.step->begin(items).ok());
    fixture.step->run_all();
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].logits == LogitsFor::none) continue;
      owners[i]->answer.take(fixture.step->logits(fixture.step->first_logit_row(i)));
    }
    fixture.step->finish();
    REQUIRE(fixture.store->check_integrity().ok());
  }
}

std::vector<Request> make_requests(const std::vector<std::vector<int32_t>>& prompts) {
  std::vector<Request> requests(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    requests[i].prompt = prompts[i];
    requests[i].starts_at_step = i / 2;
  }
  return requests;
}

void check_all_ways(const std::string& path, const std::vector<std::vector<int32_t>>& prompts) {
  auto fixture = ModelFixture::open(path, {.context_tokens = 1024, .kv_tokens = 8192}).value();
  std::vector<Answer> expected;
  for (const auto& prompt : prompts) expected.push_back(alone(*fixture, prompt, 512));
  for (size_t i = 0; i < prompts.size(); ++i) {
    INFO("prompt " << i << " of " << prompts[i].size() << " tokens");
    CHECK(alone(*fixture, prompts[i], 64) == expected[i]);
    CHECK(alone(*fixture, prompts[i], 256) == expected[i]);
  }
  std::vector<Request> batch = make_requests(prompts);
  run_batch(*fixture, batch, 256);
  for (size_t i = 0; i < prompts.size(); ++i) {
    INFO("in a batch, prompt " << i);
    CHECK(batch[i].answer == expected[i]);
  }
  batch = make_requests(prompts);
  batch[1].cancelled_at_step = 4;   // while it decodes or prefills
  batch[6].cancelled_at_step = 10;
  run_batch(*fixture, batch, 64);
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (batch[i].cancelled_at_step != SIZE_MAX) continue;
    INFO("beside cancelled neighbours, prompt " << i);
    CHECK(batch[i].answer == expected[i]);
  }
  batch.clear();
  CHECK(fixture->store->pool().counts().owned == 0);
}

std::vector<std::vector<int32_t>> cut_prompts(const std::vector<int32_t>& text,
                                              const std::array<size_t, 8>& lengths) {
  std::vector<std::vector<int32_t>> prompts;
  size_t at = 0;
  for (const size_t length : lengths) {
    std::vector<int32_t> prompt;
    for (size_t i = 0; i < length; ++i) prompt.push_back(text[(at + i) % text.size()]);
    at += length / 2 + 7;
    prompts.push_back(prompt);
  }
  return prompts;
}

std::vector<int32_t> hybrid_text() {
  const auto golden = read_golden("tiny-hybrid-logits.json").value();
  std::vector<int32_t> text;
  for (const auto& one : golden.find("cases")->as_array()) {
    for (const int32_t id : golden_ids(*one.find("ids"))) text.push_back(id);
  }
  return text;
}

const char* const kHybrid = "tests/models/tiny-hybrid-q8_0.gguf";

TEST_CASE("batching: tiny hybrid") {
  check_all_ways(source_path(kHybrid),
                 cut_prompts(hybrid_text(), {1, 5, 64, 65, 130, 300, 33, 257}));
}

TEST_CASE("batching: smollm2-135m") {
  const std::string path = cached_model("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (skip_without(path, "SmolLM2-135M-Instruct.Q4_1.gguf")) return;
  const auto golden = read_golden("smollm2-135m.json").value();
  check_all_ways(path, cut_prompts(golden_ids(*golden.find("passage")->find("ids")),
                                   {1, 5, 64, 65, 100, 270, 33, 128}));
}

TEST_CASE("batching: a step that stops after every operation, beside another step") {
  auto fixture = ModelFixture::open(source_path(kHybrid), {.context_tokens = 512}).value();
  auto other = Step::create(*fixture->model, *fixture->store, *fixture->compute, fixture->ledger,
                            {.rows_max = 64})
                   .value();
  const std::vector<int32_t> text = hybrid_text();
  const auto prompt = std::span(text).first(50);
  const auto neighbour_prompt = std::span(text).subspan(70, 40);
  const Answer expected = alone(*fixture, prompt, 512);

  auto sequence = fixture->store->create_sequence().value();
  auto neighbour = fixture->store->create_sequence().value();
  const StepItem item = {sequence.get(), prompt, LogitsFor::last};
  const StepItem neighbour_item = {neighbour.get(), neighbour_prompt, LogitsFor::last};
  REQUIRE(fixture->step->begin({&item, 1}).ok());
  REQUIRE(other->begin({&neighbour_item, 1}).ok());
  double bytes = 0;
  while (!fixture->step->done()) {
    const size_t next = fixture->step->cursor() + 1;
    const auto cost = fixture->step->operation_cost(next - 1);
    CHECK(cost.bytes > 0);
    CHECK(!fixture->step->operation_name(next - 1).empty());
    bytes += cost.bytes;
    fixture->step->run_until(next);
    CHECK(fixture->step->cursor() == next);
    if (!other->done()) other->run_until(other->cursor() + 1);
  }
  // A step reads all weights but the draft block's and most of the embedding.
  CHECK(bytes > 0.7 * static_cast<double>(fixture->model->weight_bytes()));
  Answer answer;
  answer.take(fixture->step->logits(0));
  CHECK(answer.tokens[0] == expected.tokens[0]);
  CHECK(answer.fingerprints[0] == expected.fingerprints[0]);
  CHECK(sequence->length() == 0);
  fixture->step->finish();
  CHECK(sequence->length() == 50);
  other->abandon();
  CHECK(!neighbour->valid());
}

TEST_CASE("batching: an abandoned sequence must be reset, then it answers as before") {
  auto fixture = ModelFixture::open(source_path(kHybrid), {.context_tokens = 512}).value();
  const std::vector<int32_t> text = hybrid_text();
  const auto prompt = std::span(text).first(50);
  const Answer expected = alone(*fixture, prompt, 512);
  auto sequence = fixture->store->create_sequence().value();
  const StepItem item = {sequence.get(), prompt, LogitsFor::last};
  REQUIRE(fixture->step->begin({&item, 1}).ok());
  fixture->step->run_until(fixture->step->operation_count() / 2);
  fixture->step->abandon();
  CHECK(sequence->length() == 0);
  const auto refused = fixture->step->begin({&item, 1});
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == tandem::Errc::invalid_argument);
  sequence->reset();
  REQUIRE(fixture->step->begin({&item, 1}).ok());
  fixture->step->run_all();
  CHECK(fingerprint(fixture->step->logits(0)) == expected.fingerprints[0]);
  fixture->step->finish();
}

}  // namespace
}  // namespace tandem_tests
