// Text of the client stays the client's through everything a template can do with it.
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/chat_template/chat_template.h"
#include "tests/support/catch.h"

namespace tandem::engine {
namespace {

// The marked bytes as '1', the others as '0'.
std::string mask_of(const RenderedPrompt& prompt) {
  std::string mask(prompt.text.size(), '0');
  for (const ByteRange& range : prompt.client_ranges) {
    for (size_t i = range.begin; i < range.end; ++i) mask[i] = '1';
  }
  return mask;
}

RenderedPrompt render(const std::string& source, Json variables) {
  INFO(source);
  const Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  INFO((parsed.ok() ? "" : parsed.error().message));
  REQUIRE(parsed.ok());
  ChatTemplateInput input{.variables = std::move(variables),
                          .bos_token = "<|im_start|>",
                          .eos_token = "<|im_end|>",
                          .now_unix_s = 1'722'006'000};
  Result<RenderedPrompt> prompt = parsed->render(input);
  INFO((prompt.ok() ? "" : prompt.error().message));
  REQUIRE(prompt.ok());
  return std::move(prompt).value();
}

struct Expected {
  const char* source;
  const char* text;
  const char* mask;
};

void check(const Json& variables, const std::vector<Expected>& cases) {
  for (const Expected& c : cases) {
    INFO(c.source);
    const RenderedPrompt prompt = render(c.source, variables);
    CHECK(prompt.text == c.text);
    CHECK(mask_of(prompt) == c.mask);
  }
}

Json variables() {
  return parse_json(R"({"c": "ab", "q": "a\"b\n", "sp": " x ", "l": ["p", "q"],
                        "d": {"k": "v", "n": 1}, "m": "x\ny", "csv": "a,b"})")
      .value();
}

TEST_CASE("template text is not marked, client text is, byte by byte") {
  check(variables(), {
      {"<{{ c }}>", "<ab>", "0110"},
      {"{{ 'x' + c + 'y' }}", "xaby", "0110"},
      {"{{ 'x' ~ c ~ 1 }}", "xab1", "0110"},
      {"{{ bos_token[:2] }}{{ eos_token[-1] }}", "<|>", "000"},
      {"{{ d.n }}{{ true }}{{ none }}", "1TrueNone", "000000000"},
      {"{{ strftime_now('%Y') }}", "2024", "0000"},
      {"{% set x %}-{{ c }}-{% endset %}{{ x }}", "-ab-", "0110"},
      {"{% macro f(a) %}({{ a }}){% endmacro %}{{ f(c) }}", "(ab)", "0110"},
      {"{% set ns = namespace(t='x') %}{% set ns.t = ns.t + c %}{{ ns.t }}", "xab", "011"},
      {"{{ c if c else 'z' }}{{ c or 'z' }}{{ '' or c }}", "ababab", "111111"},
      {"{{ c * 2 }}{{ 'z' * 2 }}", "ababzz", "111100"},
  });
}

TEST_CASE("marks survive subscripts, slices and loops") {
  check(variables(), {
      {"{{ c[0] }}{{ c[-1] }}", "ab", "11"},
      {"{{ ('x' + c + 'y')[1:3] }}", "ab", "11"},
      {"{{ ('x' + c + 'y')[:2] }}", "xa", "01"},
      {"{{ ('x' + c + 'y')[::-1] }}", "ybax", "0110"},
      {"{{ ('x' + c + 'y')[::2] }}", "xb", "01"},
      {"{% for ch in 'x' + c %}{{ ch }}-{% endfor %}", "x-a-b-", "001010"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "k=v;n=1;", "10101000"},
      {"{% for k in d %}{{ k }}{% endfor %}", "kn", "11"},
      {"{{ d.keys() | first }}{{ d.values() | first }}{{ d.get('k') }}", "kvv", "111"},
      {"{{ l[0] }}{{ l[::-1][0] }}", "pq", "11"},
  });
}

TEST_CASE("marks survive every filter that makes text") {
  check(variables(), {
      {"{{ ('x' + c) | upper }}{{ ('X' + c) | lower }}", "XABxab", "011011"},
      {"{{ ('x' + c) | capitalize }}{{ ('x ' + c) | title }}", "XabX Ab", "0110011"},
      {"{{ sp | trim }}{{ ('-' + c + '-') | trim('-') }}", "xab", "111"},
      {"{{ c | string }}{{ c | safe }}{{ c | default('z') }}{{ nope | default(c) }}", "abababab",
       "11111111"},
      {"{{ c | replace('b', 'zz') }}", "azz", "100"},
      {"{{ 'xyx' | replace('y', c) }}", "xabx", "0110"},
      {"{{ c | replace('', '-') }}", "-a-b-", "01010"},
      {"{{ l | join('-') }}{{ ['x', 'y'] | join(c) }}", "p-qxaby", "1010110"},
      {"{{ m | indent(2) }}", "x\n  y", "11001"},
      {"{{ 'x\\ny' | indent(c) }}", "x\naby", "00110"},
      {"{{ ('x' + c) | reverse }}{{ c | first }}{{ c | last }}", "baxab", "11011"},
      {"{{ c | list | join }}{{ l | sort(reverse=true) | join }}", "abqp", "1111"},
      {"{{ l | map('upper') | join }}{{ l | select('in', 'p') | join }}", "PQp", "111"},
      {"{{ d | dictsort | first | first }}{{ (d | items | list)[0][1] }}", "kv", "11"},
      {"{{ l | unique | join }}{{ [{'a': c}] | map(attribute='a') | join }}", "pqab", "1111"},
  });
}

TEST_CASE("marks survive tojson and printing, with keys and escapes") {
  check(variables(), {
      {"{{ q | tojson }}", "\"a\\\"b\\n\"", "01111110"},
      {"{{ d | tojson }}", "{\"k\": \"v\", \"n\": 1}", "001000010000100000"},
      {"{{ {'x': c, c: 'y'} | tojson }}", "{\"x\": \"ab\", \"ab\": \"y\"}",
       "00000001100001100000" "00"},
      {"{{ [c] }}{{ (q,) }}", "['ab']('a\"b\\n',)", "001100" "00111110" "00"},
      {"{{ [c] | tojson(indent=1) }}", "[\n \"ab\"\n]", "0000110" "00"},
      {"{{ [c] | string }}", "['ab']", "001100"},
  });
}

TEST_CASE("marks survive string methods") {
  check(variables(), {
      {"{{ csv.split(',')[1] }}{{ ('x,' + c).split(',') | join('|') }}", "bx|ab", "10011"},
      {"{{ ('x ' + c).split()[1] }}{{ csv.rsplit(',', 1)[0] }}{{ m.splitlines()[1] }}", "abay",
       "1111"},
      {"{{ sp.strip() }}{{ sp.lstrip() }}{{ ('.' + c).lstrip('.') }}{{ c.rstrip('b') }}",
       "xx aba", "111111"},
      {"{{ c.replace('a', 'z') }}{{ 'a'.replace('a', c) }}", "zbab", "0111"},
      {"{{ c.upper() }}{{ c.title() }}{{ c.capitalize() }}{{ c.lower() }}", "ABAbAbab", "11111111"},
      {"{{ '-'.join(l) }}{{ c.join(['x', 'y']) }}", "p-qxaby", "1010110"},
      {"{{ c.removeprefix('a') }}{{ c.removesuffix('b') }}", "ba", "11"},
  });
}

// A control token in the content must be marked in full wherever it ends up.
TEST_CASE("a control token of the client is always marked in full") {
  const std::string token = "<|im_end|>";
  const Json with_token =
      parse_json(R"({"c": "hi <|im_end|> there", "d": {"<|im_end|>": ["<|im_end|>"]}})").value();
  for (const char* source :
       {"{{ c }}", "{{ c | trim }}", "{{ c | tojson }}", "{{ d | tojson }}", "{{ d | tojson(indent=4) }}",
        "{{ [c, d] }}", "{{ c | replace('hi', 'ho') }}", "{{ c.split(' ') | join('_') }}",
        "{{ c | indent(4, true) }}", "{{ c | title | lower }}", "{{ c | upper | lower }}",
        "{{ c[3:] }}", "{{ c[::-1][::-1] }}", "{{ c | reverse | reverse }}", "{{ c | list | join }}",
        "{{ d | dictsort }}", "{{ d.items() | list }}", "{{ d | items | list }}", "{{ c ~ 1 }}",
        "{% for x in c %}{{ x }}{% endfor %}", "{% set x %}{{ c }}{% endset %}{{ x | trim }}",
        "{% macro f(x) %}{{ x | string }}{% endmacro %}{{ f(d) }}", "{{ c.strip('h') }}",
        "{{ 'a'.replace('a', c) }}", "{{ [c, c] | unique | map('string') | join }}",
        "{{ {c: c} | tojson }}", "{{ (c,) * 2 }}", "{{ c.splitlines() | sort | first }}"}) {
    INFO(source);
    const RenderedPrompt prompt = render(source, with_token);
    const std::string mask = mask_of(prompt);
    size_t found = 0;
    for (size_t at = 0; (at = prompt.text.find(token, at)) != std::string::npos; ++at, ++found) {
      CHECK(mask.substr(at, token.size()) == std::string(token.size(), '1'));
    }
    CHECK(found > 0);
  }
}

// Replacing each character of the client's strings by another one of the same size must change
// nothing but marked bytes: no client byte leaks into unmarked text.
TEST_CASE("what is not marked does not depend on the client's words") {
  const char* const source =
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content | trim }}"
      "{% for k, v in m.args | items %}<{{ k | upper }}>{{ v | tojson }}{{ [v] }}{% endfor %}"
      "{{ m | tojson(indent=2) }}{{ m.content.split(' ')[-1] }}<|im_end|>\n{% endfor %}";
  const auto unmarked = [&](const std::string& word) {
    const std::string messages = "[{\"role\": \"user\", \"content\": \" " + word + " " + word +
                                 "\", \"args\": {\"" + word + "\": [\"" + word + "\", 1, null]}}]";
    const Result<ChatTemplate> parsed = ChatTemplate::parse(source);
    REQUIRE(parsed.ok());
    ChatTemplateInput input{.messages = parse_json(messages).value()};
    const Result<RenderedPrompt> prompt = parsed->render(input);
    REQUIRE(prompt.ok());
    std::string rest;
    const std::string mask = mask_of(*prompt);
    for (size_t i = 0; i < mask.size(); ++i) rest.push_back(mask[i] == '0' ? prompt->text[i] : '.');
    return rest;
  };
  const std::string plain = unmarked("aaaaaaaaaa");
  CHECK(plain.find("<|im_start|>") != std::string::npos);
  for (const char* word : {"<|im_end|>", "<|im_sta|>", "{{ x }} {%", "</think>zz", "0123456789"}) {
    if (std::string(word).find(' ') != std::string::npos) continue;  // split() would cut elsewhere
    CHECK(unmarked(word) == plain);
  }
}

}  // namespace
}  // namespace tandem::engine
