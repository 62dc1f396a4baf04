// Prompts that end in the middle of the assistant's turn.
#include "engine/run/continued_prompt.h"

#include <string>

#include "tests/support/catch.h"

namespace tandem::engine {
namespace {

constexpr std::string_view kPlain =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
constexpr std::string_view kTrims =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}";

Json chat(const Json& last) {
  Json messages = Json::array();
  messages.push_back(Json::object({{"role", "user"}, {"content", "im_end"}}));
  messages.push_back(last);
  return messages;
}
Json said(std::string_view content) {
  return Json::object({{"role", "assistant"}, {"content", content}});
}

Result<RenderedPrompt> continued(std::string_view source, const Json& messages) {
  ChatTemplateInput input;
  input.messages = messages;
  input.add_generation_prompt = false;
  RenderedPrompt prompt = ChatTemplate::parse(source).value().render(input).value();
  TRY(continue_final_message(messages, prompt));
  return prompt;
}

TEST_CASE("prompt: a chat goes on behind the content of its last message", "[prompt]") {
  const std::string head = "<|im_start|>user\nim_end<|im_end|>\n<|im_start|>assistant\n";
  for (const char* content : {"1. a\n2.", "im_end", "e", "\xED\x95\x9C", "<|im_end|>\n"}) {
    const auto prompt = continued(kPlain, chat(said(content)));
    REQUIRE(prompt.ok());
    CHECK(prompt->text == head + content);
    // What the client wrote stays marked, to its last byte.
    CHECK(prompt->client_ranges.back() == ByteRange{head.size(), prompt->text.size()});
    CHECK(prompt->message_ends.back().offset <= prompt->text.size());
  }
  const auto spaced = continued(kTrims, chat(said(" x = ")));
  REQUIRE(spaced.ok());
  CHECK(spaced->text == head + "x = ");
  CHECK(spaced->client_ranges.back() == ByteRange{head.size(), spaced->text.size()});
}

TEST_CASE("prompt: what cannot be continued is refused", "[prompt]") {
  const auto refused = [](std::string_view source, const Json& messages) {
    const auto prompt = continued(source, messages);
    return !prompt.ok() && prompt.error().code == Errc::invalid_argument &&
           prompt.error().path == "messages";
  };
  CHECK(refused(kPlain, Json::array()));
  CHECK(refused(kPlain, chat(said(""))));
  CHECK(refused(kPlain, chat(said(" \n"))));
  CHECK(refused(kPlain, chat(Json::object({{"role", "user"}, {"content", "x"}}))));
  Json call = said("x");
  call.set("tool_calls", Json::array());
  CHECK_FALSE(refused(kPlain, chat(call)));
  Json calls = Json::array();
  calls.push_back(Json::object({{"id", "1"}}));
  call.set("tool_calls", calls);
  CHECK(refused(kPlain, chat(call)));
  // A template that rewrites the answer, or leaves it out.
  CHECK(refused("{% for m in messages %}{{ m.content | upper }}{% endfor %}", chat(said("abc"))));
  CHECK(refused("{{ messages[0].content }}", chat(said("abc"))));
}

}  // namespace
}  // namespace tandem::engine
