#include "service/ctl/commands.h"

#include <poll.h>

#include <cstdio>

#include "service/config.h"
#include "service/ctl/answer_fields.h"
#include "service/process.h"

namespace tandem::service::ctl {
namespace {

constexpr int kPollMs = 200;
constexpr auto kShutdownLimit = std::chrono::minutes(5);

// To the minute; "-" for never.
std::string minute(int64_t unix_s) { return unix_s == 0 ? "-" : date(unix_s).substr(0, 16); }

void print_models(const Json& answer) {
  std::printf("%-9s %-28s %-9s %8s %7s %6s %9s\n", "ROLE", "MODEL", "STATE", "PID", "SLOTS", "QUEUE",
              "RESTARTS");
  for (const Json& model : array(answer, "models")) {
    const std::string slots = text(model, "slots_busy") + "/" + text(model, "slots");
    std::printf("%-9s %-28s %-9s %8s %7s %6s %9s\n", text(model, "role").c_str(),
                text(model, "name").c_str(), text(model, "state").c_str(),
                text(model, "pid").c_str(), slots.c_str(), text(model, "queue").c_str(),
                text(model, "restarts").c_str());
    const std::string message = text(model, "message");
    if (!message.empty()) std::printf("          %s\n", message.c_str());
  }
}

// "memory: orange, 5120 MiB available, shed: ..., guard 4711 (child)"
void print_memory(const Json& answer) {
  const Json* memory = answer.find("memory");
  if (memory == nullptr || !memory->is_object()) return;
  std::string steps;
  for (const Json& step : array(*memory, "shed")) {
    if (step.is_string()) steps += (steps.empty() ? ", shedding: " : " ") + step.as_string();
  }
  const Json* guard = memory->find("guard");
  std::string problem = guard == nullptr ? "" : text(*guard, "problem");
  if (!problem.empty()) problem = " (" + problem + ")";
  std::printf("memory: %s, %lld MiB available%s%s; watched by %s%s\n", text(*memory, "level").c_str(),
              static_cast<long long>(number(*memory, "available_bytes") >> 20), steps.c_str(),
              text(*memory, "optional_held") == "true" ? ", optional model held off" : "",
              text(*memory, "watched_by").c_str(), problem.c_str());
}

Json model_field(const Context& context) {
  return Json::object({{"model", context.arguments().positional[0]}});
}

// Follows a model until it has settled; the last answer.
Result<Json> wait_settled(const Context& context, bool wants_stopped) {
  while (true) {
    TRY_ASSIGN(Json answer, context.ask("model.show", model_field(context)));
    const Json* model = answer.find("model");
    if (model == nullptr) return make_error(Errc::corrupt, "tandemd gave no model");
    const std::string state = text(*model, "state");
    if (state == "ready" && !wants_stopped) return answer;
    if (state == "stopped" && wants_stopped) return answer;
    // It starts by itself once there is memory, which may take a while.
    if (state == "failed" || state == "backoff" || (state == "waiting" && !wants_stopped)) {
      return make_error(Errc::unavailable, "model " + text(*model, "name") + " is " + state + ": " +
                                               text(*model, "message"));
    }
    (void)::poll(nullptr, 0, kPollMs);
  }
}

}  // namespace

int run_status(const Context& context) {
  const auto answer = context.ask("status");
  if (!answer.ok()) return report(answer.error());
  if (context.arguments().json) {
    print_json(*answer);
    return kDone;
  }
  const Json* ready = answer->find("ready");
  const bool is_ready = ready != nullptr && ready->is_bool() && ready->as_bool();
  std::printf("tandemd %s, process %s, up %s s, %s at %s\n", text(*answer, "version").c_str(),
              text(*answer, "pid").c_str(), text(*answer, "uptime_s").c_str(),
              text(*answer, "draining") == "true" ? "draining" : is_ready ? "ready" : "not ready",
              text(*answer, "address").c_str());
  print_memory(*answer);
  std::printf("answers under way: %s of %s\n\n", text(*answer, "active_answers").c_str(),
              text(*answer, "streams_max").c_str());
  print_models(*answer);
  return kDone;
}

int run_shutdown(const Context& context) {
  // The pidfd is taken before the question: afterwards the pid could be somebody else's.
  const auto before = context.ask("status");
  if (!before.ok()) return report(before.error());
  auto process = Process::open(static_cast<pid_t>(number(*before, "pid")));
  const auto answer = context.ask("shutdown");
  if (!answer.ok()) return report(answer.error());
  if (process.ok() && !process->wait(kShutdownLimit)) {
    return report(make_error(Errc::unavailable, "tandemd has not ended after five minutes"));
  }
  if (context.arguments().json) print_json(*answer);
  return kDone;
}

int run_model_list(const Context& context) {
  const auto answer = context.ask("model.list");
  if (!answer.ok()) return report(answer.error());
  if (context.arguments().json) {
    print_json(*answer);
  } else {
    print_models(*answer);
  }
  return kDone;
}

int run_model_show(const Context& context) {
  const auto answer = context.ask("model.show", model_field(context));
  if (!answer.ok()) return report(answer.error());
  const Json* model = answer->find("model");
  if (context.arguments().json || model == nullptr || !model->is_object()) {
    print_json(model == nullptr ? *answer : *model);
    return kDone;
  }
  for (const auto& [name, value] : model->as_object()) {
    if (!value.is_object()) {
      std::printf("%-24s %s\n", name.c_str(), text(*model, name.c_str()).c_str());
      continue;
    }
    for (const auto& [inner, field] : value.as_object()) {
      // A fact of the profile comes with its source.
      const bool fact = name == "profile" && field.find("source") != nullptr;
      const std::string shown =
          fact ? text(field, "value") + "  (" + text(field, "source") + ")"
               : text(value, inner.c_str());
      std::printf("%-24s %s\n", (name + "." + inner).c_str(), shown.c_str());
    }
  }
  return kDone;
}

int run_model_change(const Context& context, const std::string& command) {
  auto answer = context.ask("model." + command, model_field(context));
  if (answer.ok() && !context.arguments().has("--no-wait")) {
    answer = wait_settled(context, command == "unload");
  }
  if (!answer.ok()) return report(answer.error());
  const Json* model = answer->find("model");
  if (context.arguments().json) {
    print_json(model == nullptr ? *answer : *model);
  } else if (model != nullptr) {
    std::printf("model %s: %s\n", text(*model, "name").c_str(), text(*model, "state").c_str());
  }
  return kDone;
}

int run_key_add(const Context& context) {
  const auto answer =
      context.ask("key.add", Json::object({{"name", context.arguments().positional[0]},
                                           {"scope", context.arguments().flag("--scope", "inference")}}));
  if (!answer.ok()) return report(answer.error());
  const Json* key = answer->find("key");
  if (key == nullptr) return report(make_error(Errc::corrupt, "tandemd gave no key"));
  if (context.arguments().json) {
    print_json(*key);
  } else {
    std::printf("%s\n", text(*key, "key").c_str());
    std::fprintf(stderr, "This is the only time that the key is shown. Its id is %s.\n",
                 text(*key, "id").c_str());
  }
  return kDone;
}

int run_key_list(const Context& context) {
  const auto answer = context.ask("key.list");
  if (!answer.ok()) return report(answer.error());
  if (context.arguments().json) {
    const Json* keys = answer->find("keys");
    print_json(keys == nullptr ? Json::array() : *keys);
    return kDone;
  }
  std::printf("%-14s %-16s %-17s %-17s %-8s %s\n", "ID", "SCOPE", "CREATED", "LAST USED", "STATE", "NAME");
  for (const Json& key : array(*answer, "keys")) {
    std::printf("%-14s %-16s %-17s %-17s %-8s %s\n", text(key, "id").c_str(),
                text(key, "scope").c_str(), minute(number(key, "created")).c_str(),
                minute(number(key, "last_used")).c_str(),
                text(key, "revoked") == "true" ? "revoked" : "valid", text(key, "name").c_str());
  }
  return kDone;
}

int run_key_revoke(const Context& context) {
  const auto answer =
      context.ask("key.revoke", Json::object({{"id", context.arguments().positional[0]}}));
  if (!answer.ok()) return report(answer.error());
  if (context.arguments().json) {
    print_json(*answer);
  } else {
    std::printf("revoked %s\n", text(*answer, "id").c_str());
  }
  return kDone;
}

int run_config_check(const Context& context) {
  const auto& positional = context.arguments().positional;
  const std::string path = positional.empty() ? context.config_path() : positional[0];
  const auto config = load_config(path);
  if (context.arguments().json) {
    print_json(Json::object({{"file", path},
                             {"valid", config.ok()},
                             {"problems", config.ok() ? Json() : Json(config.error().message)}}));
    return config.ok() ? kDone : kUsage;
  }
  if (!config.ok()) {
    std::fprintf(stderr, "%s\n", config.error().message.c_str());
    return kUsage;
  }
  std::printf("%s: no problems\n", path.c_str());
  return kDone;
}

int run_config_show(const Context& context) {
  // A file that was named is shown as tandemd would read it; else what the running tandemd uses.
  if (context.arguments().has("--config")) {
    const auto config = load_config(context.config_path());
    if (!config.ok()) return report(config.error());
    if (context.arguments().json) {
      print_json(config_to_json(*config));
    } else {
      std::fputs(config_to_toml(*config).c_str(), stdout);
    }
    return kDone;
  }
  const auto answer = context.ask("config.show");
  if (!answer.ok()) return report(answer.error());
  const Json* config = answer->find("config");
  if (context.arguments().json) {
    print_json(config == nullptr ? *answer : *config);
  } else {
    std::fputs(text(*answer, "toml").c_str(), stdout);
  }
  return kDone;
}

int run_config_default(const Context&) {
  std::fputs(config_default_file().c_str(), stdout);
  return kDone;
}

}  // namespace tandem::service::ctl
