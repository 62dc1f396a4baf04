// Cost of the policies for one call: the repair of a request, the parse of its answer, which is fed in
// small pieces, and their sum; and what a parser with a list of tools as large as may be costs the loop
// of an engine, before its answer and behind it. CPU time of this thread, so that a busy machine blurs it
// little: the median of many runs and the least. Judges nothing.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policies/parse/parse.h"
#include "policies/sanitize/sanitize.h"

namespace {

using tandem::Json;
namespace policies = tandem::policies;

constexpr size_t kRuns = 2001;
constexpr size_t kPieceBytes = 4;  // about a token
constexpr size_t kAnswerBytes = 2200;

Json message(const char* role, const std::string& text) {
  return Json::object({{"role", Json(role)}, {"content", Json(text)}});
}

// A chat of about `bytes`, with a late system message every tenth turn.
Json chat(size_t bytes) {
  const std::string text(std::min<size_t>(bytes / 8, 2000), 'x');
  Json::Array messages{message("system", text)};
  for (size_t used = text.size(); used + 2 * text.size() <= bytes; used += 2 * text.size()) {
    messages.push_back(message("user", text));
    messages.push_back(message("assistant", text));
    if (messages.size() % 10 == 1) messages.push_back(message("system", "reminder"));
  }
  messages.push_back(message("user", text));
  return Json::object({{"messages", Json(std::move(messages))}, {"max_tokens", Json(400)}});
}

struct Answer {
  const char* name;
  policies::ToolSyntax syntax;
  bool thinking_open;
  bool tools;
  std::string text;
};

// Sentences up to about `bytes`.
std::string prose(size_t bytes, std::string_view sentence) {
  std::string text;
  while (text.size() < bytes) text += sentence;
  return text;
}

std::vector<Answer> answers() {
  constexpr std::string_view kSentence = "The query reads each row of the table once.\n";
  const std::string xml_call =
      "\n<tool_call>\n<function=search>\n<parameter=query>\nrows of the table\n</parameter>\n"
      "<parameter=limit>\n20\n</parameter>\n</function>\n</tool_call>";
  const std::string json_call =
      "\n<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"rows of the table\", "
      "\"limit\": 20}}\n</tool_call>";
  return {
      {"plain", policies::ToolSyntax::plain, false, false, prose(kAnswerBytes, kSentence)},
      {"qwen_xml", policies::ToolSyntax::qwen_xml, true, true,
       prose(kAnswerBytes / 2, kSentence) + "</think>\n\n" +
           prose(kAnswerBytes / 2 - xml_call.size(), kSentence) + xml_call},
      {"hermes", policies::ToolSyntax::hermes, false, true,
       prose(kAnswerBytes - json_call.size(), kSentence) + json_call},
      // Each sentence holds a byte that a marker begins with.
      {"qwen_xml_less", policies::ToolSyntax::qwen_xml, true, true,
       "thinking about it\n</think>\n\n" +
           prose(kAnswerBytes - xml_call.size(), "The answer is 4 < 5. ") + xml_call},
  };
}

policies::ParseOptions parse_options(const Answer& answer) {
  policies::ParseOptions options;
  options.syntax = answer.syntax;
  options.thinking_open = answer.thinking_open;
  if (!answer.tools) return options;
  const Json properties = Json::object({{"query", Json::object({{"type", Json("string")}})},
                                        {"limit", Json::object({{"type", Json("integer")}})}});
  options.tools.push_back(
      {"search", Json::object({{"type", Json("object")}, {"properties", properties}})});
  return options;
}

// The number of its events.
size_t parse(policies::ParseOptions options, std::string_view text) {
  policies::AnswerParser parser(std::move(options));
  size_t events = 0;
  for (size_t at = 0; at < text.size(); at += kPieceBytes) {
    events += parser.feed(text.substr(at, kPieceBytes)).size();
  }
  return events + parser.finish(policies::EngineFinish::stop).events.size();
}

// About as many bytes of JSON as a request's tools may have (1 MiB), in `tools` schemas of ordinary form.
Json tool_list(size_t tools) {
  const std::string words((size_t{1} << 20) / tools / 9 - 45, 'd');
  Json::Array list;
  for (size_t i = 0; i < tools; ++i) {
    Json properties = Json::object();
    for (size_t field = 0; field < 8; ++field) {
      properties.set("field" + std::to_string(field),
                     Json::object({{"type", Json("string")}, {"description", Json(words)}}));
    }
    Json schema = Json::object({{"type", Json("object")}, {"properties", std::move(properties)}});
    Json function = Json::object({{"name", Json("tool" + std::to_string(i))},
                                  {"description", Json(words)},
                                  {"parameters", std::move(schema)}});
    list.push_back(Json::object({{"type", Json("function")}, {"function", std::move(function)}}));
  }
  return Json(std::move(list));
}

double thread_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

struct Cost {
  double median_us = 0;
  double least_us = 0;
};

// `work(input)` on a copy of `input` that is made outside the time: the service hands its own over.
template <typename Input, typename Work>
Cost cost_of(const Input& input, Work work) {
  std::vector<double> times;
  for (size_t run = 0; run < kRuns; ++run) {
    Input copy = input;
    const double begin = thread_us();
    work(std::move(copy));
    times.push_back(thread_us() - begin);
  }
  std::sort(times.begin(), times.end());
  return {times[kRuns / 2], times.front()};
}

// Both ends of a parser's life, in which a list of tools is made and freed.
void print_setups() {
  constexpr int kTimes = 31;
  std::printf("\n%-10s %6s %-9s %10s %10s   (least, us)\n", "tool_bytes", "tools", "choice", "make",
              "free");
  for (const size_t tools : {size_t{1}, size_t{100}, size_t{1000}}) {
    const Json list = tool_list(tools);
    for (const auto choice : {policies::CallChoice::automatic, policies::CallChoice::none}) {
      double make = 1e9;
      double drop = 1e9;
      for (int i = 0; i < kTimes; ++i) {
        Json copy = list;
        std::optional<policies::AnswerParser> parser;
        double begin = thread_us();
        policies::ParseOptions options;
        options.syntax = policies::ToolSyntax::qwen_xml;
        options.choice = choice;
        options.tools = policies::declared_tools(std::move(copy));
        parser.emplace(std::move(options));
        make = std::min(make, thread_us() - begin);
        begin = thread_us();
        parser.reset();
        drop = std::min(drop, thread_us() - begin);
      }
      std::printf("%-10zu %6zu %-9s %10.1f %10.1f\n", list.dump().size(), tools,
                  choice == policies::CallChoice::none ? "none" : "automatic", make, drop);
    }
  }
}

}  // namespace

int main() {
  const policies::ModelProfile profile = *policies::family_profile("qwen3.8");
  const policies::TargetFacts target = policies::default_facts(policies::EngineKind::own);
  const std::vector<Answer> forms = answers();
  size_t kept = 0;
  std::vector<Cost> parses;
  std::printf("%-14s %12s %6s %10s %10s\n", "parse", "answer_bytes", "events", "median_us",
              "least_us");
  for (const Answer& answer : forms) {
    const policies::ParseOptions options = parse_options(answer);
    parses.push_back(cost_of(options, [&](policies::ParseOptions copy) {
      kept += parse(std::move(copy), answer.text);
    }));
    std::printf("%-14s %12zu %6zu %10.1f %10.1f\n", answer.name, answer.text.size(),
                parse(options, answer.text), parses.back().median_us, parses.back().least_us);
  }
  std::printf("\n%-10s %-14s %11s %8s %8s   (medians, us)\n", "chat_bytes", "answer", "sanitize",
              "parse", "sum");
  for (const size_t bytes : {size_t{4096}, size_t{220'000}}) {
    const Cost repair = cost_of(chat(bytes), [&](Json request) {
      kept += policies::sanitize(std::move(request), profile, target, {}).index();
    });
    for (size_t i = 0; i < forms.size(); ++i) {
      std::printf("%-10zu %-14s %11.1f %8.1f %8.1f\n", bytes, forms[i].name, repair.median_us,
                  parses[i].median_us, repair.median_us + parses[i].median_us);
    }
  }
  print_setups();
  return kept == 0 ? 1 : 0;
}
