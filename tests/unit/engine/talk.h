// A request with an answer format or a constraint on a model that says what the test wants.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "engine/run/request.h"
#include "policies/parse/parse.h"
#include "tests/support/fake_model.h"
#include "tests/support/loop_harness.h"
#include "tests/support/typed_answer.h"
#include "tests/unit/policies/parse_support.h"

#include "tests/support/catch.h"

namespace tandem::tests {

// One request that is fed by hand: `said` are the tokens that the model wants, one after another.
struct Talk {
  Talk(const std::vector<std::string>& said, protocol::Submit submit,
       const std::optional<protocol::Constraint>& constraint = {})
      : text(said), pieces(static_cast<int32_t>(said.size())) {
    engine::SubmitCommand command;
    command.submit = std::move(submit);
    command.prompt = prompt_of("prompt");
    if (constraint) {
      command.constraint = engine::compile_constraint(*constraint, text.token_trie()).value();
    }
    auto made = engine::Request::create(std::move(command), text,
                                        {.vocab = kFakeVocab + pieces, .context_tokens = 4096}, 1);
    if (made.ok()) {
      request = std::move(*made);
    } else {
      error = std::move(made).error();
    }
  }

  // One token: what the model wants is `wanted`.
  bool step(int32_t wanted) {
    std::vector<float> logits(static_cast<size_t>(kFakeVocab + pieces), 0.0F);
    logits[static_cast<size_t>(wanted)] = 20.0F;
    return step_of(logits);
  }
  bool step_of(const std::vector<float>& logits) {
    auto outcome = request->generate(logits, scratch, clock.now()).value();
    if (outcome.event) {
      protocol::Event event{std::move(*outcome.event)};
      take(event);
    }
    for (protocol::Event& event : outcome.more) take(event);
    if (!outcome.finish) return true;
    end(*outcome.finish);
    return false;
  }
  void end(protocol::FinishReason reason) {
    engine::RequestEnd last = request->finish(reason, clock.now());
    for (protocol::Event& event : last.more) take(event);
    finish = last.event;
    protocol::Event event{std::move(last.event)};
    take(event);
  }
  // All pieces, then the end. A forced token takes the turn of none of them.
  void run() {
    for (int32_t piece = 0; piece < pieces;) {
      const size_t before = answer.tokens.size();
      if (!step(static_cast<int32_t>(kFakeVocab) + piece)) return;
      const bool sampled = answer.tokens[before] == kFakeVocab + piece;
      piece += sampled ? 1 : 0;
    }
    step(kFakeEnd);
  }
  // A model without a will of its own, until the answer ends.
  void run_random(policies::test::Random& random) {
    std::vector<float> logits(static_cast<size_t>(kFakeVocab + pieces));
    do {
      for (float& logit : logits) logit = static_cast<float>(random.below(1000)) / 100.0F;
    } while (step_of(logits));
  }
  // As it goes over the wire.
  void take(protocol::Event& event) {
    auto read = protocol::Event::from_json(event.to_json()).value();
    if (auto* content = std::get_if<protocol::ContentEvent>(&read.body)) {
      if (content->token == protocol::kNoToken) CHECK_FALSE(content->text.empty());
    }
    answer.add(read);
  }

  FakeText text;
  int32_t pieces;
  FakeClock clock;
  engine::StepScratch scratch{text.token_trie()};
  std::unique_ptr<engine::Request> request;
  Error error;
  TypedAnswer answer;
  protocol::FinishEvent finish;
};

inline protocol::Submit formatted(policies::ToolSyntax syntax, bool thinking_open = false) {
  protocol::Submit submit = greedy(1000);
  submit.credit = 10'000;
  protocol::AnswerFormat format;
  format.syntax = policies::tool_syntax_name(syntax);
  format.thinking_open = thinking_open;
  submit.format = std::move(format);
  return submit;
}

inline Json tools_json() {
  Json tools = Json::array();
  for (const policies::DeclaredTool& tool : policies::test::sample_tools()) {
    tools.push_back(Json::object(
        {{"type", "function"},
         {"function", Json::object({{"name", tool.name}, {"parameters", tool.parameters}})}}));
  }
  return tools;
}

}  // namespace tandem::tests
