#include "service/http/answer_writer.h"

#include <utility>
#include <variant>

#include "base/check.h"
#include "base/overloaded.h"

namespace tandem::service {
namespace {

Json tool_call_json(const protocol::ToolCallEvent& call, bool with_index) {
  Json function = Json::object();
  function.set("name", call.name).set("arguments", call.arguments);
  Json json = Json::object();
  if (with_index) json.set("index", call.index);
  json.set("id", call.id).set("type", "function").set("function", std::move(function));
  return json;
}

// What both interfaces share: choices that are filled side by side, and [DONE].
class ChoicesWriter : public AnswerWriter {
 public:
  explicit ChoicesWriter(AnswerPlan plan)
      : plan_(std::move(plan)), choices_(plan_.choices), opened_(plan_.choices, false) {
    CHECK(plan_.choices > 0 && plan_.choices_per_prompt > 0);
  }

  std::string tail() override {
    std::string text;
    if (plan_.include_usage) text = wire::sse_event(usage_chunk());
    text += wire::kSseDone;
    return text;
  }

  void collect(size_t choice, const protocol::Event& event) override {
    wire::ChoiceText& text = choices_[choice];
    std::visit(Overloaded{
                   [&](const protocol::ContentEvent& content) {
                     (content.reasoning ? text.reasoning : text.text) += content.text;
                     if (plan_.logprobs && content.score.has_value()) {
                       add_score(text, *content.score);
                     }
                   },
                   [&](const protocol::PromptEvent& prompt) {
                     if (!plan_.logprobs) return;
                     for (const auto& token : prompt.tokens) add_score(text, token);
                   },
                   [&](const protocol::ToolCallEvent& call) {
                     text.tool_calls.push_back(tool_call_json(call, false));
                   },
                   [&](const protocol::FinishEvent& finish) {
                     note_finish(choice, finish);
                     text.text += finish.text;
                   },
               },
               event.body);
  }

 protected:
  virtual Json usage_chunk() = 0;
  virtual void add_score(wire::ChoiceText& choice, const protocol::ScoredToken& token) = 0;

  void note_finish(size_t choice, const protocol::FinishEvent& finish) {
    choices_[choice].finish_reason = protocol::finish_reason_name(finish.reason);
    if (choice == 0) finish_reason_ = choices_[choice].finish_reason;
    if (choice % plan_.choices_per_prompt == 0) {
      usage_.prompt_tokens += finish.usage.prompt_tokens;
      usage_.cached_tokens += finish.usage.cached_tokens;
    }
    usage_.completion_tokens += finish.usage.completion_tokens;
    usage_.reasoning_tokens += finish.usage.reasoning_tokens;
  }

  AnswerPlan plan_;
  std::vector<wire::ChoiceText> choices_;
  std::vector<bool> opened_;  // the first chunk of the choice was sent
};

class ChatWriter final : public ChoicesWriter {
 public:
  using ChoicesWriter::ChoicesWriter;

  std::string chunk(size_t choice, const protocol::Event& event) override {
    wire::ChatDelta delta{.index = choice, .role = !opened_[choice]};
    Json extra;
    const char* reason = nullptr;
    bool send = true;
    std::visit(Overloaded{
                   [&](const protocol::ContentEvent& content) {
                     (content.reasoning ? delta.reasoning : delta.content) = content.text;
                     if (plan_.logprobs && content.score.has_value()) {
                       extra = Json::Array{wire::chat_logprob_json(*content.score)};
                       delta.logprobs = &extra;
                     }
                   },
                   [&](const protocol::PromptEvent&) { send = false; },
                   [&](const protocol::ToolCallEvent& call) {
                     extra = tool_call_json(call, true);
                     delta.tool_call = &extra;
                   },
                   [&](const protocol::FinishEvent& finish) {
                     note_finish(choice, finish);
                     reason = protocol::finish_reason_name(finish.reason);
                     delta.content = finish.text;
                     delta.finish_reason = reason;
                   },
               },
               event.body);
    if (!send) return {};
    opened_[choice] = true;
    Json chunk = wire::chat_chunk(plan_.head, delta);
    const bool last = reason != nullptr && ++ended_ == plan_.choices && !plan_.include_usage;
    return wire::sse_event(last ? explained(std::move(chunk)) : chunk);
  }

  Json body() override { return wire::chat_body(plan_.head, choices_, plan_.logprobs, usage_); }

 protected:
  Json usage_chunk() override { return explained(wire::chat_usage_chunk(plan_.head, usage_)); }
  void add_score(wire::ChoiceText& choice, const protocol::ScoredToken& token) override {
    choice.chat_logprobs.push_back(wire::chat_logprob_json(token));
  }

 private:
  [[nodiscard]] Json explained(Json chunk) const {
    if (!explain_.is_null()) chunk.set("tandem", explain_);
    return chunk;
  }

  size_t ended_ = 0;
};

class TextWriter final : public ChoicesWriter {
 public:
  explicit TextWriter(AnswerPlan plan) : ChoicesWriter(std::move(plan)) {
    for (size_t i = 0; i < choices_.size(); ++i) choices_[i].text = echo_of(i);
  }

  std::string chunk(size_t choice, const protocol::Event& event) override {
    wire::TextDelta delta{.index = choice, .text = {}};
    std::string text;
    Json logprobs;
    bool send = true;
    if (!opened_[choice]) text = echo_of(choice);
    std::visit(Overloaded{
                   [&](const protocol::ContentEvent& content) {
                     text += content.text;
                     if (plan_.logprobs && content.score.has_value()) {
                       choices_[choice].legacy_logprobs.add(*content.score);
                       logprobs = choices_[choice].legacy_logprobs.take();
                       delta.logprobs = &logprobs;
                     }
                   },
                   [&](const protocol::PromptEvent& prompt) {
                     send = plan_.logprobs;
                     for (const auto& token : prompt.tokens) {
                       choices_[choice].legacy_logprobs.add(token);
                     }
                     logprobs = choices_[choice].legacy_logprobs.take();
                     delta.logprobs = &logprobs;
                   },
                   [&](const protocol::ToolCallEvent&) { send = false; },
                   [&](const protocol::FinishEvent& finish) {
                     note_finish(choice, finish);
                     text += finish.text;
                     delta.finish_reason = protocol::finish_reason_name(finish.reason);
                   },
               },
               event.body);
    if (!send) return {};
    opened_[choice] = true;
    delta.text = text;
    return wire::sse_event(wire::text_chunk(plan_.head, delta));
  }

  Json body() override { return wire::text_body(plan_.head, choices_, plan_.logprobs, usage_); }

 protected:
  Json usage_chunk() override { return wire::text_usage_chunk(plan_.head, usage_); }
  void add_score(wire::ChoiceText& choice, const protocol::ScoredToken& token) override {
    choice.legacy_logprobs.add(token);
  }

 private:
  [[nodiscard]] std::string echo_of(size_t choice) const {
    const size_t prompt = choice / plan_.choices_per_prompt;
    return prompt < plan_.echo.size() ? plan_.echo[prompt] : std::string();
  }
};

}  // namespace

std::unique_ptr<AnswerWriter> make_chat_writer(AnswerPlan plan) {
  return std::make_unique<ChatWriter>(std::move(plan));
}

std::unique_ptr<AnswerWriter> make_text_writer(AnswerPlan plan) {
  return std::make_unique<TextWriter>(std::move(plan));
}

}  // namespace tandem::service
