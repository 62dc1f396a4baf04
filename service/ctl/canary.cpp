#include "service/ctl/canary.h"

#include <poll.h>

#include <cstdio>

#include "service/ctl/answer_fields.h"

namespace tandem::service::ctl {
namespace {

constexpr int kPollMs = 300;

int print(const Context& context, const Json& answer) {
  if (context.arguments().json) {
    print_json(answer);
  } else {
    std::fputs(canary_text(answer).c_str(), stdout);
  }
  return kDone;
}

}  // namespace

std::string canary_text(const Json& answer) {
  std::string out = "canary " + text(answer, "mode") + ", every " + text(answer, "every_s") +
                    " s; the default model may lose " + text(answer, "loss_percent") +
                    " % beside the idle optional model" + (flag(answer, "running") ? "; measures now" : "") + "\n";
  if (const std::string why = text(answer, "hindrance"); !why.empty()) out += "nothing is measured now: " + why + "\n";
  if (const std::string why = text(answer, "problem"); !why.empty()) out += "the last one gave nothing: " + why + "\n";
  char line[160];
  (void)std::snprintf(line, sizeof line, "\n%-9s %12s %12s %8s  %s\n", "OPTIONAL", "MS/TOKEN", "BASELINE", "LOSS",
                      "MEASURED");
  out += line;
  for (const Json& cell : array(answer, "cells")) {
    const auto ms = [&](const char* field) { return static_cast<double>(number(cell, field)) / 1e3; };
    char baseline[32] = "-";
    char loss[32] = "-";
    if (number(cell, "baseline_us") > 0) {
      (void)std::snprintf(baseline, sizeof baseline, "%.2f", ms("baseline_us"));
      (void)std::snprintf(loss, sizeof loss, "%.1f %%", static_cast<double>(number(cell, "loss_permille")) / 10.0);
    }
    (void)std::snprintf(line, sizeof line, "%-9s %12.2f %12s %8s  %s\n", text(cell, "cell").c_str(), ms("us_per_token"),
                        baseline, loss, date(number(cell, "measured_at")).c_str());
    out += line;
  }
  return out;
}

int run_canary_show(const Context& context) {
  const auto answer = context.ask("canary.show");
  return answer.ok() ? print(context, *answer) : report(answer.error());
}

int run_canary_run(const Context& context) {
  auto answer = context.ask("canary.run");
  while (answer.ok() && flag(*answer, "running") && !context.arguments().has("--no-wait")) {
    (void)::poll(nullptr, 0, kPollMs);
    answer = context.ask("canary.show");
  }
  if (!answer.ok()) return report(answer.error());
  (void)print(context, *answer);
  return text(*answer, "problem").empty() || flag(*answer, "running") ? kDone : kFailed;
}

}  // namespace tandem::service::ctl
