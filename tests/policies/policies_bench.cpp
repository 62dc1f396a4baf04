// Cost of the policies for one call: the repair of a request and the parse of its answer, which is
// fed in small pieces. Prints the median of many runs; judges nothing, for a machine may be busy.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "policies/parse/parse.h"
#include "policies/sanitize/sanitize.h"

namespace {

using tandem::Json;
namespace policies = tandem::policies;

constexpr int kRuns = 401;
constexpr size_t kPieceBytes = 4;  // about a token

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

std::string answer() {
  std::string text = "thinking about it\n</think>\n\n";
  for (int i = 0; i < 100; ++i) text += "The answer is 4 < 5. ";
  return text +
         "\n<tool_call>\n<function=f>\n<parameter=q>\nx\n</parameter>\n</function>\n</tool_call>";
}

size_t parse(const std::string& text) {
  policies::ParseOptions options;
  options.syntax = policies::ToolSyntax::qwen_xml;
  options.thinking_open = true;
  options.tools.push_back({"f", Json()});
  policies::AnswerParser parser(std::move(options));
  size_t events = 0;
  for (size_t at = 0; at < text.size(); at += kPieceBytes) {
    events += parser.feed(std::string_view(text).substr(at, kPieceBytes)).size();
  }
  return events + parser.finish(policies::EngineFinish::stop).events.size();
}

template <typename Work>
double median_us(Work work) {
  std::vector<double> times;
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const auto end = std::chrono::steady_clock::now();
    times.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

}  // namespace

int main() {
  const policies::ModelProfile profile = *policies::family_profile("qwen3.8");
  const policies::TargetFacts target = policies::default_facts(policies::EngineKind::own);
  size_t kept = 0;
  for (size_t bytes : {size_t{4096}, size_t{220'000}}) {
    std::vector<Json> copies(kRuns, chat(bytes));  // the service hands its own request over
    size_t next = 0;
    const double us = median_us([&] {
      kept += policies::sanitize(std::move(copies[next++]), profile, target, {}).index();
    });
    std::printf("sanitize, chat of %zu bytes: %.1f us\n", bytes, us);
  }
  const std::string text = answer();
  const double us = median_us([&] { kept += parse(text); });
  std::printf("parse, answer of %zu bytes in pieces of %zu: %.1f us (%zu)\n", text.size(),
              kPieceBytes, us, kept);
  return 0;
}
