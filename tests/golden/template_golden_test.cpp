// Rendered templates must equal Jinja's, byte for byte (data made by make_template_golden.py): the
// real chat templates, families of our own, and some thousands of small expressions.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/chat_template/chat_template.h"
#include "tests/support/catch.h"

namespace tandem::engine {
namespace {

Json load(const std::string& name) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  const std::string path =
      std::string(root != nullptr ? root : ".") + "/tests/golden/data/template/" + name;
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Result<Json> json = parse_json(text);
  INFO((json.ok() ? std::string() : json.error().message));
  REQUIRE(json.ok());
  return std::move(json).value();
}

// What a case gave, in the words of the data: "text:...", "raise:..." or "error".
std::string expected_of(const Json& entry) {
  if (const Json* text = entry.find("text")) return "text:" + text->as_string();
  if (const Json* raise = entry.find("raise")) return "raise:" + raise->as_string();
  return "error";
}

bool ranges_sound(const RenderedPrompt& prompt) {
  size_t last = 0;
  bool first = true;
  for (const ByteRange& range : prompt.client_ranges) {
    if (range.begin >= range.end || range.end > prompt.text.size()) return false;
    if (!first && range.begin <= last) return false;
    last = range.end;
    first = false;
  }
  for (size_t i = 0; i < prompt.message_ends.size(); ++i) {
    const MessageEnd& end = prompt.message_ends[i];
    if (end.offset > prompt.text.size()) return false;
    if (i == 0) continue;
    const MessageEnd& before = prompt.message_ends[i - 1];
    if (end.message <= before.message || end.offset <= before.offset) return false;
  }
  return true;
}

std::string outcome(const std::string& source, const ChatTemplateInput& input,
                    std::string* detail) {
  const Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  if (!parsed) {
    *detail = parsed.error().message;
    return parsed.error().code == Errc::corrupt ? "error" : "parse limit";
  }
  const Result<RenderedPrompt> prompt = parsed->render(input);
  if (prompt) return ranges_sound(*prompt) ? "text:" + prompt->text : "unsound marks";
  *detail = prompt.error().message;
  if (is_template_raise(prompt.error())) return "raise:" + prompt.error().message;
  const bool has_line = detail->starts_with("chat template line ");
  return prompt.error().code == Errc::corrupt && has_line ? "error" : "limit";
}

ChatTemplateInput input_of(const Json& request, int64_t now) {
  ChatTemplateInput input{.messages = *request.find("messages"),
                          .bos_token = "<bos>",
                          .eos_token = "<eos>",
                          .add_generation_prompt = request.find("add_generation_prompt")->as_bool(),
                          .now_unix_s = now};
  if (const Json* tools = request.find("tools")) input.tools = *tools;
  if (const Json* variables = request.find("variables")) input.variables = *variables;
  return input;
}

void compare_requests(const std::string& file) {
  const Json data = load(file);
  const Json::Array& requests = data.find("requests")->as_array();
  CHECK(requests.size() >= 100);
  const int64_t now = data.find("now")->as_integer();
  size_t texts = 0;
  size_t raises = 0;
  for (const Json& entry : data.find("results")->as_array()) {
    const std::string& name = entry.find("template")->as_string();
    const auto index = static_cast<size_t>(entry.find("request")->as_integer());
    std::string detail;
    const std::string got = outcome(data.find("templates")->find(name)->as_string(),
                                    input_of(requests[index], now), &detail);
    const std::string want = expected_of(entry);
    texts += want.starts_with("text:") ? 1 : 0;
    raises += want.starts_with("raise:") ? 1 : 0;
    if (got == want) continue;
    INFO(name << " request " << index << ": " << requests[index].dump());
    INFO(detail);
    CHECK(got == want);
  }
  CHECK(texts > 300);
  CHECK(raises > 20);
}

TEST_CASE("real chat templates render as in Jinja") { compare_requests("real.json"); }

TEST_CASE("templates of other families render as in Jinja") { compare_requests("families.json"); }

TEST_CASE("expressions and statements give what they give in Jinja") {
  const Json data = load("expressions.json");
  const Json::Array& cases = data.find("cases")->as_array();
  CHECK(cases.size() > 3000);
  ChatTemplateInput input{.variables = *data.find("context"),
                          .now_unix_s = data.find("now")->as_integer()};
  for (const Json& entry : cases) {
    const std::string& source = entry.find("source")->as_string();
    std::string detail;
    const std::string got = outcome(source, input, &detail);
    const std::string want = expected_of(entry);
    if (got == want) continue;
    INFO(source);
    INFO(detail);
    CHECK(got == want);
  }
}

}  // namespace
}  // namespace tandem::engine
