// tandemctl: the administrator's tool. It talks to tandemd over the admin socket only (chat also over
// HTTP, as any client does) and never opens the database.
#include <cstdio>
#include <exception>
#include <functional>

#include "service/ctl/budget.h"
#include "service/ctl/canary.h"
#include "service/ctl/commands.h"
#include "service/ctl/doctor.h"
#include "service/ctl/incidents.h"
#include "service/ctl/plan_input.h"
#include "service/ctl/top.h"
#include "service/version.h"

namespace tandem::service::ctl {
namespace {

struct Command {
  CommandSpec spec;
  std::function<int(const Context&)> run;
};

std::vector<Command> make_commands() {
  const FlagSpec no_wait{"--no-wait", "", "do not wait until it is done"};
  const auto change = [&](std::string_view name, std::string_view what, const char* command) {
    return Command{{name, "MODEL", 1, 1, what, {no_wait}}, [command](const Context& context) {
                     return run_model_change(context, command);
                   }};
  };
  return {
      {{"status", "", 0, 0, "what runs, and how it is", {}}, run_status},
      {{"top", "", 0, 0, "how the models share the box just now; every second, until Ctrl-C",
        {{"--once", "", "print once and end (as --json, and where no terminal is)"}}},
       run_top},
      {{"chat", "[TEXT...]", 0, 10'000, "ask one question, or hold a conversation",
        {{"--model", "NAME", "model name, alias, default or optional (default)"},
         {"--max-tokens", "N", "longest answer"},
         {"--temperature", "X", "0 takes the likeliest token each time"},
         {"--system", "TEXT", "system message"},
         {"--url", "URL", "another server, such as http://host:8080"},
         {"--key", "KEY", "its key (or TANDEM_KEY)"}}},
       run_chat},
      {{"model list", "", 0, 0, "the models and their states", {}}, run_model_list},
      {{"model show", "MODEL", 1, 1, "everything about one model", {}}, run_model_show},
      change("model load", "start a stopped or failed model", "load"),
      change("model unload", "stop a model in order and free its memory", "unload"),
      change("model restart", "stop a model in order and start it again", "restart"),
      {{"plan", "", 0, 0, "what models would need, and whether they fit, before anything is loaded",
        {plan_flags().begin(), plan_flags().end()}},
       run_plan},
      {{"budget show", "", 0, 0, "the budgets of the models, and where each comes from", {}}, run_budget_show},
      {{"budget set", "MODEL", 1, 1, "change a running model's memory; shows first what it costs",
        {budget_set_flags().begin(), budget_set_flags().end()}},
       run_budget_set},
      {{"budget undo", "[ID]", 0, 1, "take the last change back, or all from change ID on",
        {budget_undo_flags().begin(), budget_undo_flags().end()}},
       run_budget_undo},
      {{"budget history", "", 0, 0, "the changes of budgets: who, when, what", {}}, run_budget_history},
      {{"canary show", "", 0, 0, "what the default model loses to its neighbour, as measured", {}}, run_canary_show},
      {{"canary run", "", 0, 0, "measure it now: beside the idle, the prompting and the decoding optional model", {no_wait}},
       run_canary_run},
      {{"incidents", "", 0, 0, "what went wrong on this box, and what to do about it",
        {{"--open", "", "only what is still open"},
         {"--since", "TIME", "only what was open in the last TIME, such as 2h or 7d"},
         {"--limit", "N", "at most N of them, newest first (50)"},
         {"--exit-code", "", "end with 4 or 5 when a listed one is open and not acknowledged"}}},
       run_incidents},
      {{"incidents ack", "ID", 1, 1, "mark an incident as seen", {}}, run_incidents_ack},
      {{"doctor", "", 0, 0, "check this host, with or without a running tandemd; ends with the worst",
        {{"--root", "DIR", "a host's files below another directory, such as a mounted disk"}}},
       run_doctor},
      {{"key add", "NAME", 1, 1, "make an API key; it is shown once",
        {{"--scope", "SCOPE", "inference (default), admin, or inference,admin"}}},
       run_key_add},
      {{"key list", "", 0, 0, "the API keys, without their secrets", {}}, run_key_list},
      {{"key revoke", "ID", 1, 1, "make a key invalid at once", {}}, run_key_revoke},
      {{"config check", "[FILE]", 0, 1, "all problems of a configuration file", {}}, run_config_check},
      {{"config show", "", 0, 0, "the resolved configuration (of --config FILE, or running)", {}},
       run_config_show},
      {{"config default", "", 0, 0, "a commented file with all defaults", {}}, run_config_default},
      {{"shutdown", "", 0, 0, "stop tandemd and its engines in order", {}}, run_shutdown},
  };
}

int run(const std::vector<std::string_view>& words) {
  const std::vector<Command> commands = make_commands();
  std::vector<CommandSpec> specs;
  for (const Command& command : commands) specs.push_back(command.spec);
  const auto arguments = parse_arguments(words, specs);
  if (!arguments.ok()) return report(arguments.error());
  if (arguments->version) {
    std::printf("tandemctl %s\n", std::string(kVersion).c_str());
    return kDone;
  }
  if (arguments->command == nullptr) {
    std::fputs(general_help(specs).c_str(), arguments->help ? stdout : stderr);
    return arguments->help ? kDone : kUsage;
  }
  if (arguments->help) {
    std::fputs(command_help(*arguments->command).c_str(), stdout);
    return kDone;
  }
  const Context context(*arguments);
  return commands[static_cast<size_t>(arguments->command - specs.data())].run(context);
}

}  // namespace
}  // namespace tandem::service::ctl

int main(int argc, char** argv) {
  try {
    return tandem::service::ctl::run({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tandemctl: %s\n", e.what());
    return 1;
  }
}
