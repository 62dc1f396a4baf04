#include "service/ctl/incidents.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "service/config_units.h"
#include "service/ctl/answer_fields.h"

namespace tandem::service::ctl {
namespace {

// The two largest units: "2h 5m".
std::string span_text(int64_t seconds) {
  seconds = std::max<int64_t>(seconds, 0);
  if (seconds < 60) return std::to_string(seconds) + "s";
  if (seconds < 3600) return std::to_string(seconds / 60) + "m " + std::to_string(seconds % 60) + "s";
  const int64_t hours = seconds / 3600;
  if (hours < 48) return std::to_string(hours) + "h " + std::to_string(seconds / 60 % 60) + "m";
  return std::to_string(hours / 24) + "d " + std::to_string(hours % 24) + "h";
}

std::string one_text(const Json& incident, int64_t now) {
  const bool open = flag(incident, "open");
  const std::string model = text(incident, "model");
  const int64_t raised = number(incident, "raised_at");
  const int64_t end = open ? now : number(incident, "cleared_at");
  std::string out = "#" + std::to_string(number(incident, "id")) + "  " +
                    (open ? "OPEN" : "closed") + "  " + text(incident, "kind") +
                    (model.empty() ? "" : "  " + model) + "  (" + text(incident, "severity") +
                    ")\n";
  out += "    since " + date(raised) + " UTC, for " + span_text(end - raised);
  if (const int64_t repeats = number(incident, "repeats"); repeats > 0) {
    out += ", raised " + std::to_string(repeats + 1) + " times";
  }
  if (!open) out += "; " + text(incident, "cleared_why");
  if (number(incident, "acknowledged_at") != 0) out += "; acknowledged";
  out += "\n    " + text(incident, "text") + "\n";
  if (open) {
    out += "    " + text(incident, "meaning") + "\n    Next: " + text(incident, "next") + "\n";
  }
  return out;
}

// A time back from now in tandemctl's own notation, such as 2h or 7d.
Result<int64_t> parse_since(const std::string& text) {
  const bool days = text.ends_with('d');
  auto time = parse_duration(days ? text.substr(0, text.size() - 1) + "h" : text);
  if (!time.ok() || time->count() <= 0) {
    return make_error(Errc::invalid_argument,
                      "--since wants a time such as 30m, 2h or 7d, not \"" + text + "\"");
  }
  return std::max<int64_t>(1, time->count() / 1000 * (days ? 24 : 1));
}

Result<int64_t> parse_number(const std::string& what, const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number > 0) return number;
  return make_error(Errc::invalid_argument,
                    what + " wants a whole number above 0, not \"" + text + "\"");
}

Result<Json> request_of(const Arguments& arguments) {
  Json request = Json::object();
  request.set("open", arguments.has("--open"));
  if (arguments.has("--since")) {
    TRY_ASSIGN(const int64_t since_s, parse_since(arguments.flag("--since")));
    request.set("since_s", since_s);
  }
  if (arguments.has("--limit")) {
    TRY_ASSIGN(const int64_t limit, parse_number("--limit", arguments.flag("--limit")));
    request.set("limit", limit);
  }
  return request;
}

}  // namespace

std::string incidents_text(const Json& answer, int64_t now_unix_s) {
  std::string out;
  if (const Json* complete = answer.find("complete"); complete != nullptr && !flag(answer, "complete")) {
    out += "The store cannot be read (" + text(answer, "reason") +
           "): this is what tandemd has in memory.\n\n";
  }
  for (const Json& incident : array(answer, "incidents")) out += one_text(incident, now_unix_s);
  const int64_t open = number(answer, "open");
  return out + (open == 0 ? "Nothing is open.\n" : std::to_string(open) + " open.\n");
}

int incidents_exit_code(const Json& answer) {
  int code = kDone;
  for (const Json& incident : array(answer, "incidents")) {
    if (!flag(incident, "open") || number(incident, "acknowledged_at") != 0) continue;
    const std::string severity = text(incident, "severity");
    if (severity == "info") continue;
    code = std::max<int>(code, severity == "warning" ? kWarned : kFoundFailure);
  }
  return code;
}

int run_incidents(const Context& context) {
  auto request = request_of(context.arguments());
  if (!request.ok()) return report(request.error());
  const auto answer = context.ask("incident.list", std::move(*request));
  if (!answer.ok()) return report(answer.error());
  if (context.arguments().json) {
    print_json(*answer);
  } else {
    std::fputs(incidents_text(*answer, SystemClock().unix_seconds()).c_str(), stdout);
  }
  return context.arguments().has("--exit-code") ? incidents_exit_code(*answer) : kDone;
}

int run_incidents_ack(const Context& context) {
  const auto id = parse_number("ID", context.arguments().positional[0]);
  if (!id.ok()) return report(id.error());
  const auto answer = context.ask("incident.ack", Json::object({{"id", *id}}));
  if (!answer.ok()) return report(answer.error());
  const Json* incident = answer->find("incident");
  if (context.arguments().json || incident == nullptr) {
    print_json(incident == nullptr ? *answer : *incident);
  } else {
    std::fputs(one_text(*incident, SystemClock().unix_seconds()).c_str(), stdout);
  }
  return kDone;
}

}  // namespace tandem::service::ctl
