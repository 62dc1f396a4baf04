// Chat templates and messages from anywhere: zero bytes split the input into a template
// and the JSON of its messages. Parsing and rendering must end within small limits, and what comes
// out must keep its promises: valid UTF-8, sorted separate ranges inside the text, ascending ends.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"
#include "engine/chat_template/chat_template.h"

namespace {

void walk(const tandem::engine::RenderedPrompt& prompt) {
  CHECK(tandem::utf8::is_valid(prompt.text));
  size_t last = 0;
  for (size_t i = 0; i < prompt.client_ranges.size(); ++i) {
    const tandem::engine::ByteRange& range = prompt.client_ranges[i];
    CHECK(range.begin < range.end && range.end <= prompt.text.size());
    CHECK(i == 0 || range.begin > last);
    last = range.end;
  }
  for (size_t i = 0; i < prompt.message_ends.size(); ++i) {
    CHECK(prompt.message_ends[i].offset <= prompt.text.size());
    if (i == 0) continue;
    CHECK(prompt.message_ends[i].message > prompt.message_ends[i - 1].message);
    CHECK(prompt.message_ends[i].offset > prompt.message_ends[i - 1].offset);
  }
}

}  // namespace

// Input: template, a byte 0, messages (JSON), and optionally a byte 0 and variables (JSON).
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr tandem::engine::ChatTemplateLimits kLimits{.template_bytes_max = 16'384,
                                                       .ast_depth_max = 50,
                                                       .eval_depth_max = 150,
                                                       .loop_iterations_max = 2000,
                                                       .steps_max = 50'000,
                                                       .output_bytes_max = 100'000,
                                                       .value_bytes_max = 1'000'000};
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t first = input.find('\0');
  const auto parsed = tandem::engine::ChatTemplate::parse(input.substr(0, first), kLimits);
  if (!parsed.ok()) return 0;
  tandem::engine::ChatTemplateInput request{.bos_token = "<s>", .eos_token = "</s>"};
  if (first != std::string_view::npos) {
    const std::string_view rest = input.substr(first + 1);
    const size_t second = rest.find('\0');
    auto messages = tandem::parse_json(rest.substr(0, second));
    if (messages.ok()) request.messages = std::move(messages).value();
    if (second != std::string_view::npos) {
      auto variables = tandem::parse_json(rest.substr(second + 1));
      if (variables.ok()) request.variables = std::move(variables).value();
    }
  }
  request.tools = request.messages;
  const auto prompt = parsed->render(request);
  if (!prompt.ok()) return 0;
  CHECK(prompt->text.size() <= kLimits.output_bytes_max);
  walk(*prompt);
  return 0;
}
