// The probe, on the templates of the golden data rendered by our own engine. TANDEM_SOURCE_DIR
// names the tree.
#include "policies/template_probe.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "engine/chat_template/chat_template.h"
#include "tests/support/catch.h"

using tandem::Json;
namespace policies = tandem::policies;

namespace {

std::string template_text(const char* file, const char* name) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  std::ifstream stream(std::string(root == nullptr ? "." : root) + "/tests/golden/data/template/" +
                       file);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  return tandem::parse_json(bytes).value().find("templates")->find(name)->as_string();
}

policies::ModelProfile probed(const std::string& source, const char* family) {
  const auto parsed = tandem::engine::ChatTemplate::parse(source);
  const auto render = [&](const policies::ProbeChat& chat) -> tandem::Result<std::string> {
    tandem::engine::ChatTemplateInput input;
    input.messages = chat.messages;
    input.tools = chat.tools;
    input.variables = chat.variables;
    tandem::Result<tandem::engine::RenderedPrompt> prompt = parsed.value().render(input);
    if (!prompt.ok()) return prompt.error();
    return std::move(prompt)->text;
  };
  return policies::probe_template(*policies::family_profile(family), render).value().profile;
}

}  // namespace

TEST_CASE("the probe finds what the tiny hybrid's template accepts", "[probe]") {
  const policies::ModelProfile profile = probed(template_text("real.json", "tiny-hybrid"), "plain");
  CHECK(profile.system == policies::SystemPlacement::leading);
  CHECK(profile.needs_user);
  CHECK_FALSE(profile.alternates);
  CHECK(profile.thinking_switch == policies::ThinkingSwitch::enable_thinking);
  CHECK(profile.thinks_by_default);
  CHECK(profile.prompt_opens_think);
  CHECK(profile.effort_scale == policies::EffortScale::none);
  CHECK(profile.syntax == policies::ToolSyntax::qwen_xml);
  CHECK_FALSE(profile.one_call_per_message);
  CHECK(profile.source == policies::FactSource::probe);
}

TEST_CASE("the probe on templates of published models", "[probe]") {
  const policies::ModelProfile coder =
      probed(template_text("real.json", "qwen2.5-coder-0.5b"), "plain");
  CHECK(coder.system == policies::SystemPlacement::any);
  CHECK_FALSE(coder.needs_user);
  CHECK(coder.syntax == policies::ToolSyntax::hermes);
  CHECK(coder.thinking_switch == policies::ThinkingSwitch::none);
  const policies::ModelProfile small = probed(template_text("real.json", "smollm2-135m"), "hermes");
  CHECK(small.system == policies::SystemPlacement::any);
  CHECK(small.syntax == policies::ToolSyntax::plain);
  CHECK(small.thinking_switch == policies::ThinkingSwitch::none);
}

TEST_CASE("a template that alternates and knows no tools", "[probe]") {
  const std::string source =
      "{%- for m in messages %}"
      "{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
      "{{ raise_exception('roles must alternate') }}{% endif %}"
      "{{ m.role + m.content }}{% endfor %}";
  const policies::ModelProfile profile = probed(source, "qwen3.8");
  CHECK(profile.alternates);
  CHECK(profile.system == policies::SystemPlacement::none);
  CHECK(profile.thinking_switch == policies::ThinkingSwitch::none);
  CHECK_FALSE(profile.thinks_by_default);
  CHECK(profile.syntax == policies::ToolSyntax::plain);
}

TEST_CASE("effort words are those that change something", "[probe]") {
  const std::string words =
      "{%- if effort is defined and effort not in ['low', 'medium', 'xhigh'] %}"
      "{{ raise_exception('effort') }}{% endif %}{{ effort }}"
      "{%- for m in messages %}{{ m.content }}{% endfor %}";
  const std::string source = "{%- set effort = reasoning_effort %}" + words;
  CHECK(probed(source, "plain").effort_scale == policies::EffortScale::low_medium_xhigh);
}

TEST_CASE("a template that renders nothing is not ready", "[probe]") {
  const auto render = [](const policies::ProbeChat&) -> tandem::Result<std::string> {
    return tandem::make_error(tandem::Errc::corrupt, "no");
  };
  REQUIRE_FALSE(policies::probe_template(*policies::family_profile("plain"), render).ok());
}
