// The events of one answer, put together by part.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/overloaded.h"
#include "base/protocol.h"

namespace tandem::tests {

struct TypedAnswer {
  std::string text;       // content
  std::string reasoning;
  std::vector<protocol::ToolCallEvent> calls;
  std::vector<int32_t> tokens;        // of events with a token
  int64_t reasoning_events = 0;       // of those
  std::vector<protocol::ScoredToken> scores;
  std::vector<protocol::ScoredToken> prompt;

  // Everything but the finish, of which the text is taken.
  void add(protocol::Event& event) {
    std::visit(Overloaded{[this](protocol::ContentEvent& content) {
                            (content.reasoning ? reasoning : text) += content.text;
                            if (content.score) scores.push_back(*content.score);
                            if (content.token == protocol::kNoToken) return;
                            tokens.push_back(content.token);
                            reasoning_events += content.reasoning ? 1 : 0;
                          },
                          [this](protocol::PromptEvent& in) { prompt = std::move(in.tokens); },
                          [this](protocol::ToolCallEvent& call) { calls.push_back(std::move(call)); },
                          [this](protocol::FinishEvent& finish) { text += finish.text; }},
               event.body);
  }
};

}  // namespace tandem::tests
