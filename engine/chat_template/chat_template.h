// ChatTemplate: a model's chat template (the Jinja subset that chat templates use), parsed once and
// rendered per request. It follows the settings of Hugging Face's renderer: trim_blocks and
// lstrip_blocks on, one trailing newline of the template dropped, tojson compact, unsorted and
// without HTML escapes, sandboxed and immutable values.
//
// A parsed template is immutable: any number of threads may render it at once. Rendering is pure; it
// has no clock, file or environment access. Both parsing and rendering are bounded by
// ChatTemplateLimits, so a hostile template or request costs a bounded amount of time and memory.
//
// Marks. Every string of the request (keys included) that reaches the output is reported in
// RenderedPrompt::client_ranges, whatever filters, slices, joins or tojson it went through; a byte
// made from a client's byte (an escape, an upper case letter) is the client's. Text of the template
// itself, bos_token and eos_token, numbers and dates are not. The tokenizer must not recognise a
// control token that overlaps a client range.
//
// Callers prepare the messages: tool_calls[].function.arguments of OpenAI clients is JSON in a
// string and must be parsed into an object first; roles must be ones the template knows.
//
// Errors of render():
//   invalid_argument  the template called raise_exception: `message` is its text, unchanged. Nothing
//                     else uses this code. Callers answer 400 with the text.
//   corrupt           the template cannot work on this input (wrong type, unknown filter); the
//                     message starts with "chat template line N: "
//   too_large         a limit was passed; the message names it
// parse() uses corrupt (with the line) and too_large.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/byte_range.h"

namespace tandem::engine {

struct ChatTemplateLimits {
  size_t template_bytes_max = size_t{1} << 20;
  size_t ast_depth_max = 200;         // nesting of statements and expressions, chains included
  size_t eval_depth_max = 600;        // nested evaluations, macro calls included: bounds the stack
  size_t loop_iterations_max = 1'000'000;  // of all loops of a render together
  size_t steps_max = 20'000'000;      // evaluated nodes and work on values: the deadline
  size_t output_bytes_max = size_t{32} << 20;
  size_t value_bytes_max = size_t{128} << 20;  // all values ever made by one render
};

struct ChatTemplateInput {
  Json messages = Json::array();
  Json tools;                      // null: `tools` is none, as Hugging Face passes it
  Json variables = Json::object();  // further names, such as {"enable_thinking": false}
  std::string bos_token;
  std::string eos_token;
  bool add_generation_prompt = true;
  int64_t now_unix_s = 0;  // for strftime_now, in UTC
};

// Where the output stood when the template had finished with a message. Known when the template
// walks over the messages with an outermost for loop and that iteration wrote something; ascending
// in both fields. A hint for prefix reuse: a template may still look at later messages before.
struct MessageEnd {
  size_t message = 0;  // index in ChatTemplateInput::messages
  size_t offset = 0;   // bytes of RenderedPrompt::text
  bool operator==(const MessageEnd&) const = default;
};

struct RenderedPrompt {
  std::string text;                      // valid UTF-8
  std::vector<ByteRange> client_ranges;  // ascending, not empty, not touching one another
  std::vector<MessageEnd> message_ends;  // may be empty
};

class ChatTemplate {
 public:
  static Result<ChatTemplate> parse(std::string_view source, const ChatTemplateLimits& limits = {});

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  [[nodiscard]] Result<RenderedPrompt> render(const ChatTemplateInput& input) const;

  // True when the template reads this name anywhere (such as "enable_thinking" or "tools").
  [[nodiscard]] bool mentions(std::string_view variable) const;

 private:
  struct Parsed;
  explicit ChatTemplate(std::unique_ptr<Parsed> parsed);
  std::unique_ptr<Parsed> parsed_;
};

// True when `error` of render() came from the template's own raise_exception.
[[nodiscard]] inline bool is_template_raise(const Error& error) {
  return error.code == Errc::invalid_argument;
}

}  // namespace tandem::engine
