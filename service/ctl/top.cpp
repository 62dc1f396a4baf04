#include "service/ctl/top.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>

#include "base/fd.h"
#include "service/ctl/answer_fields.h"

namespace tandem::service::ctl {
namespace {

constexpr int kRefreshMs = 1000;
constexpr const char* kOpenScreen = "\x1b[?1049h\x1b[?25l";
constexpr const char* kCloseScreen = "\x1b[?25h\x1b[?1049l";
constexpr const char* kHome = "\x1b[H";
constexpr const char* kClearLine = "\x1b[K\n";
constexpr const char* kClearBelow = "\x1b[J";

Result<Json> ask_status(const Context& context) {
  return context.ask("status", Json::object({{"stats", true}}));
}

std::string format(const char* form, ...) __attribute__((format(printf, 1, 2)));
std::string format(const char* form, ...) {
  char buffer[256];
  va_list values;
  va_start(values, form);
  (void)std::vsnprintf(buffer, sizeof buffer, form, values);
  va_end(values);
  return buffer;
}

const Json* find_model(const Json& answer, const std::string& name) {
  for (const Json& model : array(answer, "models")) {
    if (text(model, "name") == name) return &model;
  }
  return nullptr;
}

// How much a counter of the engine grew a second; null where one process did not give both.
Json rate(const Json* before, const Json& now, const char* counter, double seconds) {
  const Json* stats = now.find("stats");
  const Json* old = before == nullptr ? nullptr : before->find("stats");
  if (stats == nullptr || old == nullptr || stats->find(counter) == nullptr || seconds <= 0.0) return Json();
  if (text(*before, "instance") != text(now, "instance")) return Json();
  return Json(static_cast<double>(number(*stats, counter) - number(*old, counter)) / seconds);
}

// Of what is told with the engine's numbers; null without.
Json told(const Json& model, const char* field) {
  const Json* stats = model.find("stats");
  const Json* value = stats == nullptr ? nullptr : stats->find(field);
  return value == nullptr ? Json() : *value;
}

Json model_figures(const Json* before, const Json& now, double seconds) {
  Json out = Json::object();
  for (const char* field : {"role", "name", "state", "message", "slots", "slots_busy", "queue", "queue_max",
                            "inter_token_p50_us", "inter_token_p95_us", "inter_token_p99_us", "resident_bytes"}) {
    const Json* value = now.find(field);
    out.set(field, value == nullptr ? Json() : *value);
  }
  out.set("tokens_per_s", rate(before, now, "completion_tokens", seconds))
      .set("prompt_tokens_per_s", rate(before, now, "prompt_tokens", seconds))
      .set("lease_waits_per_s", rate(before, now, "lease_waits", seconds));
  // Device time is told by the lease; without one, the time in steps says how busy the engine is.
  const Json units = told(now, "lease_units");
  const bool leased = units.is_integer() && units.as_integer() > 0;
  const Json busy = rate(before, now, leased ? "lease_served_us" : "step_us_total", seconds);
  out.set("device_share", busy.is_null() ? Json() : Json(busy.as_double() / 1e6));
  for (const char* field : {"kv_pages_total", "kv_pages_owned", "kv_pages_cached", "kv_page_bytes", "lease_wait_p50_us",
                            "lease_wait_p99_us", "lease_quantum_us"}) {
    out.set(field, told(now, field));
  }
  return out;
}

std::string ms(const Json& model, const char* field) {
  const int64_t us = number(model, field);
  return us == 0 ? "-" : format("%.1f", static_cast<double>(us) / 1e3);
}

std::string real(const Json& model, const char* field, int decimals, double times = 1.0) {
  const Json* value = model.find(field);
  if (value == nullptr || !value->is_number()) return "-";
  return format("%.*f", decimals, value->as_double() * times);
}

std::string mib(int64_t bytes) { return std::to_string(bytes >> 20); }

std::string gib(int64_t bytes) {
  return format("%.1f GiB", static_cast<double>(bytes) / static_cast<double>(int64_t{1} << 30));
}

std::string model_line(const Json& model) {
  const int64_t page = number(model, "kv_page_bytes");
  const std::string kv = mib(number(model, "kv_pages_owned") * page) + "/" +
                         mib(number(model, "kv_pages_cached") * page) + "/" +
                         mib(number(model, "kv_pages_total") * page);
  const std::string slots = text(model, "slots_busy") + "/" + text(model, "slots");
  const std::string queue = text(model, "queue") + "/" + text(model, "queue_max");
  const std::string pace = ms(model, "inter_token_p50_us") + "/" + ms(model, "inter_token_p95_us");
  const std::string wait = ms(model, "lease_wait_p50_us") + "/" + ms(model, "lease_wait_p99_us");
  return format("%-9s %-24.24s %-9s %7s %8s %8s %8s %6s %12s %8s %12s %15s\n", text(model, "role").c_str(),
                text(model, "name").c_str(), text(model, "state").c_str(), slots.c_str(), queue.c_str(),
                real(model, "tokens_per_s", 1).c_str(), real(model, "prompt_tokens_per_s", 0).c_str(),
                real(model, "device_share", 0, 100.0).c_str(), pace.c_str(),
                real(model, "lease_waits_per_s", 0).c_str(), wait.c_str(), kv.c_str());
}

// "level green, 18.6 GiB available; floors: yellow 2.0 GiB, ..."
std::string memory_line(const Json& memory) {
  std::string out = "level " + text(memory, "level") + ", " + gib(number(memory, "available_bytes")) + " available";
  if (const Json* floors = memory.find("floors"); floors != nullptr && floors->is_object()) {
    out += "; floors:";
    for (const auto& [name, floor] : floors->as_object()) {
      out += (out.ends_with(':') ? " " : ", ") + name + " " + gib(number(floor, "enter"));
    }
  }
  std::string steps;
  for (const Json& step : array(memory, "shed")) {
    if (step.is_string()) steps += (steps.empty() ? "; shedding: " : " ") + step.as_string();
  }
  return out + steps + "\n";
}

// How the two share the device: the longest unit of the lease, or what pacing leaves of the optional model.
std::string sharing_line(const Json& figures) {
  std::string out;
  for (const Json& model : array(figures, "models")) {
    if (text(model, "role") != "default" || number(model, "lease_quantum_us") == 0) continue;
    out += "lease: quantum " + ms(model, "lease_quantum_us") + " ms\n";
  }
  const Json* pacing = figures.find("pacing");
  if (pacing == nullptr || !pacing->is_object()) return out;
  out += "pacing of the optional model: stage " + text(*pacing, "stage");
  if (number(*pacing, "stage") > 0) out += ", at most " + text(*pacing, "requests_max") + " requests";
  if (number(*pacing, "prompt_tokens_max") > 0) out += ", prompts of " + text(*pacing, "prompt_tokens_max") + " tokens";
  return out + "\n";
}

void draw(const std::string& screen) {
  std::string out = kHome;
  for (const char c : screen) {
    if (c == '\n') {
      out += kClearLine;
    } else {
      out += c;
    }
  }
  out += kClearBelow;
  std::fputs(out.c_str(), stdout);
  (void)std::fflush(stdout);
}

// Until a signal comes that ends a program.
int live(const Context& context, Json before) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&set, number);
  (void)::sigprocmask(SIG_BLOCK, &set, nullptr);
  const Fd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  std::fputs(kOpenScreen, stdout);
  auto then = std::chrono::steady_clock::now();
  while (true) {
    pollfd poll{.fd = signals.get(), .events = POLLIN, .revents = 0};
    if (::poll(&poll, 1, kRefreshMs) != 0) break;
    auto now = ask_status(context);
    const auto at = std::chrono::steady_clock::now();
    if (!now.ok()) {
      draw("tandemd does not answer: " + now.error().message + "\n");
      continue;
    }
    draw(top_text(top_figures(before, *now, std::chrono::duration<double>(at - then).count())));
    before = std::move(*now);
    then = at;
  }
  std::fputs(kCloseScreen, stdout);
  return kDone;
}

}  // namespace

Json top_figures(const Json& before, const Json& now, double seconds) {
  Json models = Json::array();
  for (const Json& model : array(now, "models")) {
    models.push_back(model_figures(find_model(before, text(model, "name")), model, seconds));
  }
  Json out = Json::object();
  for (const char* field : {"version", "uptime_s", "ready", "draining", "active_answers", "streams_max",
                            "incidents_open", "memory", "pacing"}) {
    const Json* value = now.find(field);
    out.set(field, value == nullptr ? Json() : *value);
  }
  return out.set("models", std::move(models));
}

std::string top_text(const Json& figures) {
  const int64_t up = number(figures, "uptime_s");
  std::string out = "tandemd " + text(figures, "version") + ", up " +
                    format("%lld:%02lld:%02lld", static_cast<long long>(up / 3600),
                           static_cast<long long>(up / 60 % 60), static_cast<long long>(up % 60)) +
                    (flag(figures, "draining") ? ", draining" : flag(figures, "ready") ? ", ready" : ", not ready") +
                    "; answers " + text(figures, "active_answers") + " of " + text(figures, "streams_max") +
                    "; incidents open: " + text(figures, "incidents_open") + "\n";
  if (const Json* memory = figures.find("memory"); memory != nullptr && memory->is_object()) out += memory_line(*memory);
  out += format("\n%-9s %-24s %-9s %7s %8s %8s %8s %6s %12s %8s %12s %15s\n", "ROLE", "MODEL", "STATE", "RUN", "QUEUE",
                "TOK/S", "PROMPT/S", "DEV %", "TOKEN ms", "WAITS/S", "LEASE ms", "KV MiB");
  for (const Json& model : array(figures, "models")) out += model_line(model);
  for (const Json& model : array(figures, "models")) {
    if (const std::string message = text(model, "message"); !message.empty()) {
      out += text(model, "role") + ": " + message + "\n";
    }
  }
  out += sharing_line(figures);
  return out + "\nTOKEN: time between tokens, p50/p95 of the last 30 s. LEASE: wait for the device, p50/p99. "
               "KV: used/cached/total.\n";
}

int run_top(const Context& context) {
  auto before = ask_status(context);
  if (!before.ok()) return report(before.error());
  const Arguments& arguments = context.arguments();
  if (!arguments.json && !arguments.has("--once") && ::isatty(STDOUT_FILENO) == 1) {
    return live(context, std::move(*before));
  }
  const auto then = std::chrono::steady_clock::now();
  (void)::poll(nullptr, 0, kRefreshMs);
  const auto now = ask_status(context);
  if (!now.ok()) return report(now.error());
  const std::chrono::duration<double> between = std::chrono::steady_clock::now() - then;
  const Json figures = top_figures(*before, *now, between.count());
  if (arguments.json) {
    print_json(figures);
  } else {
    std::fputs(top_text(figures).c_str(), stdout);
  }
  return kDone;
}

}  // namespace tandem::service::ctl
