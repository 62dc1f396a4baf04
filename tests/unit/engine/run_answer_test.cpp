// A request with an answer format, on a model that says what the test wants: typed events, thinking
// budgets, forced tokens.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "policies/parse/parse.h"
#include "tests/support/loop_harness.h"
#include "tests/unit/engine/talk.h"
#include "tests/unit/policies/parse_support.h"

#include "tests/support/catch.h"

namespace tandem::tests {
namespace {

using policies::test::Random;

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size(); at += 3) words.emplace_back(text.substr(at, 3));
  return words;
}

std::vector<std::string> random_pieces(Random& random, const std::string& text) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = std::min(1 + random.below(7), text.size() - at);
    pieces.push_back(text.substr(at, bytes));
    at += bytes;
  }
  return pieces;
}

}  // namespace

TEST_CASE("answer: any tokens of a text give the parser's answer", "[answer]") {
  Random random(11);
  for (int round = 0; round < 1400; ++round) {
    const auto syntax = policies::test::kSyntaxes[static_cast<size_t>(round) %
                                                  std::size(policies::test::kSyntaxes)];
    protocol::Submit submit = formatted(syntax, random.below(3) == 0);
    policies::ParseOptions options;
    options.syntax = syntax;
    options.thinking_open = submit.format->thinking_open;
    options.id_seed = submit.format->id_seed = "seed";
    if (random.below(4) != 0) {
      submit.format->tools = tools_json();
      options.tools = policies::test::sample_tools();
    }
    if (random.below(5) == 0) {
      submit.format->tool_choice = "required";
      options.choice = policies::CallChoice::forced;
    }
    options.parallel_calls = submit.format->parallel_calls = random.below(4) != 0;
    if (random.below(3) == 0) options.stop = submit.stop = {"STOP", "ST\n"};
    const std::string text = policies::test::marker_soup(random, syntax, 1 + random.below(20));
    const bool cut = random.below(2) == 0;
    const std::vector<std::string> pieces = random_pieces(random, text);
    if (cut) submit.max_tokens = static_cast<int64_t>(pieces.size());

    policies::AnswerEnd end;
    const policies::WholeAnswer whole = policies::parse_whole_answer(
        options, text, cut ? policies::EngineFinish::length : policies::EngineFinish::stop, &end);
    Talk talk(pieces, submit);
    INFO(talk.error.message << talk.error.path);
    REQUIRE(talk.request != nullptr);
    talk.run();
    INFO(policies::tool_syntax_name(syntax) << " " << Json(text).dump());
    REQUIRE(talk.answer.text == whole.content);
    REQUIRE(talk.answer.reasoning == whole.reasoning);
    REQUIRE(talk.answer.calls.size() == whole.calls.size());
    for (size_t i = 0; i < whole.calls.size(); ++i) {
      REQUIRE(talk.answer.calls[i].name == whole.calls[i].name);
      REQUIRE(talk.answer.calls[i].arguments == whole.calls[i].arguments);
      REQUIRE(talk.answer.calls[i].id == whole.calls[i].id);
      REQUIRE(talk.answer.calls[i].index == whole.calls[i].index);
    }
    REQUIRE(protocol::finish_reason_name(talk.finish.reason) == end.finish);
    REQUIRE(talk.finish.call_missing == end.call_missing);
    REQUIRE(talk.finish.warnings.size() == end.warnings.size());
    if (!talk.finish.stop_sequence.empty()) {
      REQUIRE(std::count(options.stop.begin(), options.stop.end(), talk.finish.stop_sequence) == 1);
      REQUIRE(end.finish != "length");
    }
    const auto tokens = static_cast<int64_t>(talk.answer.tokens.size());
    REQUIRE(tokens <= static_cast<int64_t>(pieces.size()));
    REQUIRE(talk.finish.usage.completion_tokens == tokens);
    REQUIRE(talk.finish.usage.reasoning_tokens == talk.answer.reasoning_events);
  }
}

TEST_CASE("answer: thought, content and a call, token by token", "[answer]") {
  protocol::Submit submit = formatted(policies::ToolSyntax::qwen_xml, true);
  submit.format->tools = tools_json();
  submit.top_logprobs = 0;
  Talk talk({"I", " call", "</think>", "\n\n", "Well.", "<tool_call>", "\n<function=g>\n",
             "</function>\n", "</tool_call>"},
            submit);
  talk.run();
  CHECK(talk.answer.reasoning == "I call");
  CHECK(talk.answer.text == "Well.");
  REQUIRE(talk.answer.calls.size() == 1);
  CHECK(talk.answer.calls[0].name == "g");
  CHECK(talk.finish.reason == protocol::FinishReason::tool_calls);
  CHECK(talk.finish.usage.completion_tokens == 9);
  CHECK(talk.finish.usage.reasoning_tokens == 3);  // the closer belongs to the thought
  CHECK(talk.answer.scores.size() == 9);
}

TEST_CASE("answer: a stop string ends the content, never the thought", "[answer]") {
  protocol::Submit submit = formatted(policies::ToolSyntax::hermes, true);
  submit.stop = {"END", "STOP"};
  Talk talk({"END of", " it</think>", "ab S", "TO", "P more", "never"}, submit);
  talk.run();
  CHECK(talk.answer.reasoning == "END of it");
  CHECK(talk.answer.text == "ab ");
  CHECK(talk.finish.reason == protocol::FinishReason::stop);
  CHECK(talk.finish.stop_sequence == "STOP");
  CHECK(talk.finish.usage.completion_tokens == 5);
}

TEST_CASE("answer: the thought ends when its tokens are used up", "[answer]") {
  const std::string closing = "\n</think>\n\n";
  protocol::Submit submit = formatted(policies::ToolSyntax::qwen_xml, true);
  submit.thinking_tokens_max = 4;
  submit.top_logprobs = 1;
  Talk talk({"a", "b", "c", "d", "Answer", " it"}, submit);
  talk.run();
  CHECK(talk.answer.reasoning == "abcd");
  CHECK(talk.answer.text == "Answer it");
  const auto closing_tokens = static_cast<int64_t>(closing.size());
  CHECK(talk.finish.usage.reasoning_tokens == 4 + closing_tokens);
  CHECK(talk.finish.usage.completion_tokens == 6 + closing_tokens);
  REQUIRE(talk.finish.warnings.size() == 1);
  CHECK(talk.finish.warnings[0].rule == 22);
  CHECK(talk.finish.warnings[0].code == "reasoning_budget_reached");
  // The sequence holds the closing words, and their log-probabilities are the model's own: far below
  // those of the token that it wanted.
  std::string said;
  for (const int32_t token : talk.answer.tokens) said += talk.text.token_bytes(token);
  CHECK(said == "abcd" + closing + "Answer it");
  REQUIRE(talk.answer.scores.size() == talk.answer.tokens.size());
  CHECK(talk.answer.scores[3].chosen.logprob > -1);
  CHECK(talk.answer.scores[4].chosen.logprob < -15);
  CHECK(talk.answer.scores[4].chosen.bytes == "\n");
  CHECK(talk.answer.scores[4].top[0].bytes == "Answer");
}

TEST_CASE("answer: tokens are kept for the answer", "[answer]") {
  protocol::Submit submit = formatted(policies::ToolSyntax::qwen_xml, true);
  submit.max_tokens = 20;
  submit.answer_tokens_reserved = 3;
  Talk talk(std::vector<std::string>(30, "w"), submit);
  talk.run();
  CHECK(talk.answer.text == "www");  // 20 - 6 thought - 11 closing
  CHECK(talk.answer.reasoning == "wwwwww");
  CHECK(talk.finish.reason == protocol::FinishReason::length);

  // A budget of none: the thought is ended before it begins. Without a thought nothing is forced.
  submit = formatted(policies::ToolSyntax::qwen_xml, true);
  submit.thinking_tokens_max = 0;
  Talk none({"Hi"}, submit);
  none.run();
  CHECK(none.answer.reasoning.empty());
  CHECK(none.answer.text == "Hi");
  submit.format->thinking_open = false;
  submit.thinking_tokens_max = 2;
  Talk plain({"a", "b", "c", "d"}, submit);
  plain.run();
  CHECK(plain.answer.text == "abcd");
  CHECK(plain.finish.warnings.empty());
  // One that the answer opens itself counts from its opener on.
  Talk opened({"<think>", "a", "b", "c"}, submit);
  opened.run();
  CHECK(opened.answer.reasoning == "a");
  CHECK(opened.answer.text == "bc");
}

TEST_CASE("answer: nothing is made of a cancelled answer", "[answer]") {
  protocol::Submit submit = formatted(policies::ToolSyntax::qwen_xml);
  submit.format->tools = tools_json();
  submit.format->tool_choice = "required";
  Talk talk(words_of("x<tool_call>\n<function=g>\n</function>\n"), submit);
  for (int32_t i = 0; i < talk.pieces - 1; ++i) talk.step(static_cast<int32_t>(kFakeVocab) + i);
  talk.end(protocol::FinishReason::cancelled);
  CHECK(talk.answer.calls.empty());
  CHECK(talk.answer.text == "x");
  CHECK(talk.finish.reason == protocol::FinishReason::cancelled);
  CHECK_FALSE(talk.finish.call_missing);
  CHECK(talk.finish.warnings.empty());
}

TEST_CASE("answer: a format that makes no sense is refused by its path", "[answer]") {
  protocol::Submit submit = formatted(policies::ToolSyntax::plain);
  submit.format->syntax = "klingon";
  CHECK(Talk({}, submit).error.path == "format.syntax");
  submit = formatted(policies::ToolSyntax::plain);
  submit.format->rules_off = {33};
  CHECK(Talk({}, submit).error.path == "format.rules_off");
  submit = greedy(10);
  submit.thinking_tokens_max = 5;
  CHECK(Talk({}, submit).error.path == "thinking_tokens_max");
}

TEST_CASE("answer: the budget holds in a batch, and through preemption", "[answer]") {
  // Thinks for ever, says "A" 1500 times once the thought is closed, then ends.
  const auto next = [](std::span<const int32_t> history) {
    const std::string all(history.begin(), history.end());
    const size_t closed = all.find("</think>\n\n");
    if (closed == std::string::npos) return static_cast<int32_t>('t');
    return all.size() - closed < 1510 ? static_cast<int32_t>('A') : kFakeEnd;
  };
  const bool prefixes = GENERATE(false, true);
  CAPTURE(prefixes);
  LoopHarness h({.slots = 3, .context_tokens = 4096, .kv_tokens = 6400, .prefixes = prefixes});
  h.runner.next_token = next;
  for (uint64_t id = 1; id <= 3; ++id) {
    protocol::Submit submit = formatted(policies::ToolSyntax::qwen_xml, true);
    submit.max_tokens = 4000;
    submit.thinking_tokens_max = static_cast<int64_t>(900 + id);
    h.submit(LoopHarness::key(1, id), prompt_of(std::string(60, static_cast<char>('0' + id))), submit);
  }
  h.run();
  for (uint64_t id = 1; id <= 3; ++id) {
    const Seen& seen = h.seen[LoopHarness::key(1, id)];
    REQUIRE(seen.finish);
    CHECK(seen.reasoning == std::string(900 + id, 't'));
    CHECK(seen.text == std::string(1500, 'A'));
    CHECK(seen.finish->usage.reasoning_tokens == static_cast<int64_t>(900 + id) + 11);
  }
  int64_t rows = 0;
  for (const int64_t step : h.runner.rows_seen) rows += step;
  CHECK(h.loop->stats().preemptions > 0);
  CHECK(rows > 3 * (60 + 900 + 11 + 1500) + 500);  // some were computed twice
}

}  // namespace tandem::tests
