// Greedy answers of the tiny hybrid, from messages to text: template, tokenizer, model. The f16
// file must give every stored text, but for places where two tokens are tied; the q8_0 file is
// another function, so only the share of equal texts that was recorded from it is asked for.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/chat_template/chat_template.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/golden/golden_report.h"
#include "tests/support/catch.h"

namespace tandem_tests {
namespace {

using tandem::Json;
using tandem::engine::ChatTemplate;
using tandem::engine::ChatTemplateInput;
using tandem::engine::LogitsFor;
using tandem::engine::Tokenizer;

constexpr size_t kTokensMax = 200;
// Logits of two engines with f16 weights differ by about 1e-3; a gap below this can fall either
// way.
constexpr float kTieGap = 5e-3F;

struct Asker {
  ModelFixture& fixture;
  Tokenizer tokenizer;
  ChatTemplate chat_template;

  explicit Asker(ModelFixture& model)
      : fixture(model),
        tokenizer(Tokenizer::from_gguf(model.file.metadata()).value()),
        chat_template(
            ChatTemplate::parse(
                model.file.metadata().get_string("tokenizer.chat_template").value())
                .value()) {}

  [[nodiscard]] std::vector<int32_t> prompt(const Json& answer) const {
    ChatTemplateInput input;
    input.messages = *answer.find("messages");
    if (const Json* tools = answer.find("tools"); tools != nullptr) input.tools = *tools;
    input.variables.set("enable_thinking", answer.find("thinking")->as_bool());
    const auto rendered = chat_template.render(input).value();
    return tokenizer
        .encode(rendered.text,
                {.parse_special = true, .client_ranges = rendered.client_ranges})
        .value();
  }

  [[nodiscard]] std::string text(std::span<const int32_t> tokens) const {
    return tokenizer.decode(tokens, {.keep_special = true}).value();
  }

  [[nodiscard]] std::vector<int32_t> answer(const std::vector<int32_t>& prompt) const {
    auto sequence = fixture.store->create_sequence().value();
    std::vector<int32_t> tokens;
    const auto take = [&](int64_t, std::span<const float> logits) {
      tokens.push_back(argmax(logits));
    };
    REQUIRE(fixture.run(*sequence, prompt, 64, LogitsFor::last, take).ok());
    while (tokens.size() < kTokensMax && !tokenizer.is_end_of_generation(tokens.back())) {
      const int32_t last = tokens.back();
      REQUIRE(fixture.run(*sequence, {&last, 1}, 64, LogitsFor::last, take).ok());
    }
    if (tokenizer.is_end_of_generation(tokens.back())) tokens.pop_back();
    return tokens;
  }

  // The largest gap by which another token beats the expected one, along the expected text.
  [[nodiscard]] float largest_gap(std::vector<int32_t> prompt, const std::string& expected) const {
    const auto tokens = tokenizer.encode(expected, {.parse_special = true}).value();
    const size_t prompt_tokens = prompt.size();
    prompt.insert(prompt.end(), tokens.begin(), tokens.end());
    auto sequence = fixture.store->create_sequence().value();
    float gap = 0;
    const auto sink = [&](int64_t position, std::span<const float> logits) {
      const size_t next = static_cast<size_t>(position) + 1;
      if (next < prompt_tokens || next >= prompt.size()) return;
      const float best = logits[static_cast<size_t>(argmax(logits))];
      const float here = best - logits[static_cast<size_t>(prompt[next])];
      if (!(here <= gap)) gap = here;
    };
    REQUIRE(fixture.run(*sequence, prompt, 64, LogitsFor::all, sink).ok());
    return gap;
  }
};

struct Tally {
  int equal = 0;
  int ties = 0;
  int different = 0;
};

Tally ask_all(const std::string& path, bool must_be_equal) {
  const Json golden = read_golden("tiny-hybrid-answers.json").value();
  auto fixture = ModelFixture::open(path, {.logit_rows_max = 64}).value();
  const Asker asker(*fixture);
  Tally tally;
  for (const Json& one : golden.find("answers")->as_array()) {
    const std::vector<int32_t> prompt = asker.prompt(one);
    const std::string question = one.find("messages")->dump();
    INFO(question);
    CHECK(static_cast<int64_t>(prompt.size()) == one.find("prompt_tokens")->as_integer());
    const std::string& expected = one.find("text")->as_string();
    const std::string text = asker.text(asker.answer(prompt));
    if (text == expected) {
      ++tally.equal;
      continue;
    }
    const float gap = asker.largest_gap(prompt, expected);
    if (gap <= kTieGap) {
      ++tally.ties;
      std::printf("tie (gap %.1e): %s\n", static_cast<double>(gap), question.c_str());
      continue;
    }
    ++tally.different;
    INFO("expected " << expected << "\ngot " << text << "\nlargest gap " << gap);
    CHECK(!must_be_equal);
  }
  std::printf("%s: %d equal, %d ties, %d different\n", path.c_str(), tally.equal, tally.ties,
              tally.different);
  return tally;
}

TEST_CASE("golden answers: tiny hybrid f16") {
  const std::string path = shared_model("tiny-hybrid-f16.gguf");
  if (skip_without(path, "tiny-hybrid-f16.gguf")) return;
  const Tally tally = ask_all(path, true);
  CHECK(tally.equal + tally.ties == 98);
  CHECK(tally.ties <= 4);  // more would be a systematic difference
}

TEST_CASE("golden answers: tiny hybrid q8_0") {
  const Tally tally = ask_all(source_path("tests/models/tiny-hybrid-q8_0.gguf"), false);
  CHECK(tally.equal >= 90);  // 94 on AVX-512, AVX2 and portable kernels differ by a few
}

}  // namespace
}  // namespace tandem_tests
