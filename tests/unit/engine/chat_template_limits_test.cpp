// Errors, limits, message ends and dates of the chat template renderer.
#include <string>

#include "base/json.h"
#include "engine/chat_template/chat_template.h"
#include "tests/support/catch.h"

namespace tandem::engine {
namespace {

Result<RenderedPrompt> render(const std::string& source, const ChatTemplateInput& input = {},
                              const ChatTemplateLimits& limits = {}) {
  Result<ChatTemplate> parsed = ChatTemplate::parse(source, limits);
  if (!parsed) return std::move(parsed).error();
  return parsed->render(input);
}

TEST_CASE("raise_exception is told apart from broken templates") {
  const Result<RenderedPrompt> raised =
      render("\n{% if true %}{{ raise_exception('No <x> please.') }}{% endif %}");
  REQUIRE_FALSE(raised.ok());
  CHECK(is_template_raise(raised.error()));
  CHECK(raised.error().message == "No <x> please.");

  const Result<RenderedPrompt> broken = render("a\nb\n{{ nope.x }}");
  REQUIRE_FALSE(broken.ok());
  CHECK_FALSE(is_template_raise(broken.error()));
  CHECK(broken.error().code == Errc::corrupt);
  CHECK(broken.error().message == "chat template line 3: 'nope' is undefined");

  const Result<RenderedPrompt> syntax = render("a\n{% if %}");
  REQUIRE_FALSE(syntax.ok());
  CHECK(syntax.error().message.starts_with("chat template line 2: "));
  CHECK_FALSE(render("{% include 'x' %}").ok());
  CHECK_FALSE(render("\xff").ok());
}

TEST_CASE("every kind of growth meets a limit") {
  const ChatTemplateLimits small{.template_bytes_max = 4000,
                                 .eval_depth_max = 100,
                                 .loop_iterations_max = 1000,
                                 .steps_max = 20'000,
                                 .output_bytes_max = 5000,
                                 .value_bytes_max = 300'000};
  for (const char* source : {
           "{{ 'a' * 1000000000 }}",
           "{{ [0] * 1000000000 }}",
           "{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
           "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s | replace('a', 'aa') %}{% endfor %}",
           "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] | join(ns.s) %}{% endfor %}",
           "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
           "{% set ns = namespace(l=[1]) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
           "{% set ns = namespace(l=[1]) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson }}",
           "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
           "{% set ns = namespace(l=[1]) %}{% for i in range(900) %}{% set ns.l = [ns.l] %}{% endfor %}",
           "{% for i in range(100) %}{% for j in range(100) %}{% endfor %}{% endfor %}",
           "{% for i in range(600) %}0123456789{% endfor %}",
           "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
           "{% macro f(x=f()) %}{% endmacro %}{{ f() }}",
           "{{ [[1, 2]] | tojson(indent=1000) ~ [[1, 2]] | tojson(indent=1000) ~ [[[[1]]]] | tojson(indent=1000) }}",
           "{{ range(90000) | list }}",
           "{{ 'x' | indent(1000, true) }}{% for i in range(9) %}{{ 'x' | indent(1000, true) }}{% endfor %}",
       }) {
    INFO(source);
    const Result<RenderedPrompt> result = render(source, {}, small);
    REQUIRE_FALSE(result.ok());
    INFO(result.error().message);
    CHECK(result.error().code == Errc::too_large);
  }
  CHECK(render(std::string(4001, 'x'), {}, small).error().code == Errc::too_large);
  CHECK(render("{% for i in range(900) %}x{% endfor %}", {}, small).ok());
}

TEST_CASE("deep nesting is refused before it can exhaust the stack") {
  const auto repeat = [](const std::string& part, size_t n) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out += part;
    return out;
  };
  const size_t n = 100'000;
  for (const std::string& source :
       {"{{ " + repeat("(", n) + "1" + repeat(")", n) + " }}", "{{ " + repeat("not ", n) + "1 }}",
        "{{ " + repeat("-", n) + "1 }}", "{{ " + repeat("[", n) + repeat("]", n) + " }}",
        "{{ x" + repeat(".x", n) + " }}", "{{ 1" + repeat(" + 1", n) + " }}",
        "{{ x" + repeat("|d", n) + " }}", "{{ x" + repeat(" is x", n) + " }}",
        repeat("{% if 1 %}", n), repeat("{% for x in y %}", n), "{{ f" + repeat("(1)", n) + " }}",
        "{% set " + repeat("(", n) + "x = 1 %}", "{{ 1" + repeat(" if 1 else 1", n) + " }}",
        "{{ x" + repeat(" or x", n) + " }}"}) {
    const Result<ChatTemplate> parsed = ChatTemplate::parse(source, {.template_bytes_max = 4'000'000});
    REQUIRE_FALSE(parsed.ok());
  }
  CHECK(render("{{ 1" + repeat(" + 1", 150) + " }}").ok());
}

TEST_CASE("the ends of messages are reported for an outermost loop") {
  const Json messages = parse_json(
      R"([{"role": "system", "content": "s"}, {"role": "user", "content": "uu"},
          {"role": "assistant", "content": "a"}])").value();
  ChatTemplateInput input{.messages = messages};
  using Ends = std::vector<MessageEnd>;
  const auto ends = [&](const char* source) {
    const Result<RenderedPrompt> prompt = render(source, input);
    REQUIRE(prompt.ok());
    return prompt->message_ends;
  };
  CHECK(ends("{% for m in messages %}<{{ m.content }}>{% endfor %}END") ==
        Ends{{0, 3}, {1, 7}, {2, 10}});
  // The list may be cut, and a walk that writes nothing does not count.
  CHECK(ends("{% for m in messages %}{% set x = m %}{% endfor %}S{% for m in messages[1:] %}"
             "{{ m.content }}{% endfor %}") == Ends{{1, 3}, {2, 4}});
  // Backwards, inside another loop or a macro: not known.
  CHECK(ends("{% for m in messages | reverse %}{{ m.content }}{% endfor %}").size() <= 1);
  CHECK(ends("{% for i in range(1) %}{% for m in messages %}{{ m.content }}{% endfor %}{% endfor %}")
            .empty());
  CHECK(ends("{% macro f() %}{% for m in messages %}{{ m.content }}{% endfor %}{% endmacro %}{{ f() }}")
            .empty());
}

TEST_CASE("dates follow the Gregorian calendar in UTC") {
  const auto date = [](int64_t now) {
    ChatTemplateInput input{.now_unix_s = now};
    return render("{{ strftime_now('%Y-%m-%d %H:%M:%S %a %j') }}", input).value().text;
  };
  CHECK(date(0) == "1970-01-01 00:00:00 Thu 001");
  CHECK(date(951'782'400) == "2000-02-29 00:00:00 Tue 060");
  CHECK(date(4'107'542'399) == "2100-02-28 23:59:59 Sun 059");
  CHECK(date(-1) == "1969-12-31 23:59:59 Wed 365");
}

TEST_CASE("variables keep their types and cannot replace the request's own names") {
  ChatTemplateInput input{.variables = parse_json(R"({"enable_thinking": false, "messages": 1})").value()};
  CHECK(render("{{ enable_thinking is false }}{{ messages is sequence }}{{ tools is none }}", input)
            .value().text == "TrueTrueTrue");
  const Result<ChatTemplate> parsed = ChatTemplate::parse("{% if enable_thinking %}{% endif %}");
  REQUIRE(parsed.ok());
  CHECK(parsed->mentions("enable_thinking"));
  CHECK_FALSE(parsed->mentions("tools"));
}

}  // namespace
}  // namespace tandem::engine
