#include "service/ctl/budget.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <optional>

#include "service/budget.h"
#include "service/ctl/answer_fields.h"
#include "service/ctl/plan_input.h"

namespace tandem::service::ctl {
namespace {

constexpr int kPollMs = 100;

const Json& member(const Json& json, const char* field) {
  static const Json kNothing = Json::object();
  const Json* value = json.find(field);
  return value != nullptr && value->is_object() ? *value : kNothing;
}

struct WishFlag {
  const char* flag;
  BudgetField field;
};
constexpr std::array<WishFlag, kBudgetFieldCount> kWishFlags = {
    {{"--kv", BudgetField::kv},
     {"--slots", BudgetField::slots},
     {"--batch-tokens", BudgetField::batch_tokens},
     {"--prompt-tokens-max", BudgetField::prompt_tokens_max}}};

Result<Json> wish_value(const WishFlag& wish, const std::string& value) {
  if (value == "configured") return Json();
  if (wish.field == BudgetField::kv) {
    auto size = parse_plan_size(value);
    if (!size.ok()) return make_error(Errc::invalid_argument, "--kv: " + size.error().message);
    return Json(*size);
  }
  int64_t count = 0;
  const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), count);
  if (code != std::errc() || end != value.data() + value.size()) {
    return make_error(Errc::invalid_argument,
                      std::string(wish.flag) + ": \"" + value.substr(0, 40) + "\" is no number");
  }
  return Json(count);
}

Result<Json> set_request(const Context& context) {
  const Arguments& arguments = context.arguments();
  Json request = Json::object({{"model", arguments.positional[0]}});
  bool any = false;
  for (const WishFlag& wish : kWishFlags) {
    if (!arguments.has(wish.flag)) continue;
    TRY_ASSIGN(Json value, wish_value(wish, arguments.flag(wish.flag)));
    request.set(budget_field_name(wish.field), std::move(value));
    any = true;
  }
  if (any) return request;
  return make_error(Errc::invalid_argument,
                    "nothing to change: give --kv, --slots, --batch-tokens or --prompt-tokens-max");
}

Result<Json> undo_request(const Context& context) {
  Json request = Json::object();
  const auto& positional = context.arguments().positional;
  if (positional.empty()) return request;
  int64_t id = 0;
  const std::string& word = positional[0];
  const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), id);
  if (code != std::errc() || end != word.data() + word.size() || id < 1) {
    return make_error(Errc::invalid_argument,
                      "\"" + word.substr(0, 40) + "\" is no change: tandemctl budget history shows them");
  }
  return request.set("id", id);
}

// Orders the job and follows it to its end.
Result<Json> carry_out(const Context& context, const char* command, Json request, bool quiet) {
  TRY_ASSIGN(const Json ordered, context.ask(command, std::move(request)));
  std::string said;
  while (true) {
    TRY_ASSIGN(const Json job,
               context.ask("budget.job", Json::object({{"job", number(ordered, "job")}})));
    if (text(job, "state") == "done") return member(job, "result");
    const std::string doing = text(job, "doing");
    if (!quiet && doing != said && doing != "starts" && doing != "plans") {
      std::printf("%s ...\n", doing.c_str());
      (void)std::fflush(stdout);
      said = doing;
    }
    (void)::poll(nullptr, 0, kPollMs);
  }
}

void print_exchange(const Json& result) {
  const std::string change = text(result, "change");
  std::printf("%s\n", text(result, "text").c_str());
  if (!change.empty()) std::printf("change: %s\n", change.c_str());
}

bool confirmed() {
  std::printf("change it? [y/N] ");
  (void)std::fflush(stdout);
  std::array<char, 16> line{};
  return std::fgets(line.data(), line.size(), stdin) != nullptr && (line[0] == 'y' || line[0] == 'Y');
}

int refused(const Json& result) {
  const std::string why = text(result, "why");
  std::fprintf(stderr, "tandemctl: nothing was changed%s%s\n", why.empty() ? "" : ": ", why.c_str());
  return kFailed;
}

int print_done(const Json& result) {
  const std::string why = text(result, "why");
  if (!why.empty()) std::printf("%s\n", why.c_str());
  const std::string how = text(result, "how");
  const std::string id = text(result, "id");
  const std::string model = text(result, "model");
  const std::string failure = text(result, "restart_error");
  if (!failure.empty()) {
    std::fprintf(stderr,
                 "tandemctl: change %s holds, but the model did not come back: %s; tandemctl budget "
                 "undo %s takes it back\n",
                 id.c_str(), failure.c_str(), id.c_str());
    return kFailed;
  }
  const std::string pending = text(result, "pending");
  if (!pending.empty()) std::printf("a part waits for running requests: %s\n", pending.c_str());
  const char* what = how == "live"      ? "changed live, no request was ended"
                     : how == "restart" ? "changed by an ordered restart"
                                        : "holds from the model's next start on";
  std::printf("model %s: %s%s (change %s; tandemctl budget undo %s takes it back)\n", model.c_str(), what,
              flag(result, "forced") ? ", forced" : "", id.c_str(), id.c_str());
  return kDone;
}

// Shows the exchange first, asks where a person sits there, then makes the change.
int change(const Context& context, const char* command, Json request) {
  const Arguments& arguments = context.arguments();
  request.set("force", arguments.has("--force"));
  if (!arguments.json || arguments.has("--dry-run")) {
    Json question = request;
    const auto planned = carry_out(context, command, question.set("dry_run", true), true);
    if (!planned.ok()) return report(planned.error());
    const bool allowed = flag(*planned, "allowed");
    if (arguments.json) {
      print_json(*planned);
      return allowed ? kDone : kFailed;
    }
    print_exchange(*planned);
    if (!allowed) return refused(*planned);
    if (arguments.has("--dry-run")) return kDone;
    if (!arguments.has("--yes") && ::isatty(STDIN_FILENO) == 1 && !confirmed()) return kFailed;
  }
  const auto result = carry_out(context, command, std::move(request), arguments.json);
  if (!result.ok()) return report(result.error());
  if (arguments.json) {
    print_json(*result);
    return flag(*result, "allowed") && text(*result, "restart_error").empty() ? kDone : kFailed;
  }
  if (!flag(*result, "allowed")) {  // the host has less than a moment ago
    print_exchange(*result);
    return refused(*result);
  }
  const Json* taken_back = result->find("rolled_back");
  if (taken_back != nullptr && taken_back->is_bool() && taken_back->as_bool()) {
    std::fprintf(stderr, "tandemctl: %s\n", text(*result, "why").c_str());
    return kFailed;
  }
  return flag(*result, "applied") ? print_done(*result) : int{kDone};
}

constexpr FlagSpec kForce = {"--force", "", "change it although the plan refuses"};
constexpr FlagSpec kYes = {"--yes", "", "do not ask"};
constexpr FlagSpec kDryRun = {"--dry-run", "", "only show what it would cost"};

}  // namespace

std::span<const FlagSpec> budget_set_flags() {
  static constexpr auto kFlags = std::to_array<FlagSpec>({
      {"--kv", "SIZE", "memory of its KV cache, such as 24GiB; 0: what its slots need"},
      {"--slots", "N", "requests that run at once"},
      {"--batch-tokens", "N", "rows of one step"},
      {"--prompt-tokens-max", "N", "longest prompt that is taken; 0: as the context allows"},
      kForce,
      kYes,
      kDryRun,
  });
  return kFlags;
}

std::span<const FlagSpec> budget_undo_flags() {
  static constexpr auto kFlags = std::to_array<FlagSpec>({kForce, kYes, kDryRun});
  return kFlags;
}

int run_budget_show(const Context& context) {
  const auto answer = context.ask("budget.show");
  if (!answer.ok()) return report(answer.error());
  if (context.arguments().json) {
    print_json(Json::object({{"models", Json(array(*answer, "models"))}}));
    return kDone;
  }
  std::printf("%-9s %-28s %-18s %12s  %s\n", "ROLE", "MODEL", "BUDGET", "VALUE", "FROM");
  for (const Json& model : array(*answer, "models")) {
    for (const BudgetField field : kBudgetFields) {
      const Json& value = member(member(model, "budget"), budget_field_name(field));
      std::string from = "configuration file";
      if (text(value, "from") == "override") {
        from = "tandemctl budget (the file says " +
               budget_value_text(field, number(value, "configured")) + ")";
      }
      std::printf("%-9s %-28s %-18s %12s  %s\n", text(model, "role").c_str(),
                  text(model, "name").c_str(), budget_field_name(field),
                  budget_value_text(field, number(value, "value")).c_str(), from.c_str());
    }
  }
  return kDone;
}

int run_budget_set(const Context& context) {
  auto request = set_request(context);
  if (!request.ok()) return report(request.error());
  return change(context, "budget.set", std::move(*request));
}

int run_budget_undo(const Context& context) {
  auto request = undo_request(context);
  if (!request.ok()) return report(request.error());
  return change(context, "budget.undo", std::move(*request));
}

int run_budget_history(const Context& context) {
  const auto answer = context.ask("budget.history");
  if (!answer.ok()) return report(answer.error());
  if (context.arguments().json) {
    print_json(Json(array(*answer, "changes")));
    return kDone;
  }
  std::printf("%4s  %-19s  %-12s %-9s %-24s %s\n", "ID", "WHEN (UTC)", "WHO", "ROLE", "MODEL", "CHANGE");
  for (const Json& each : array(*answer, "changes")) {
    std::string what = text(each, "change").empty() ? "(no value)" : text(each, "change");
    if (text(each, "act") == "undo") what += ", undoes " + text(each, "undoes");
    if (flag(each, "forced")) what += ", forced";
    std::printf("%4s  %-19s  %-12s %-9s %-24s %s (%s)\n", text(each, "id").c_str(),
                date(number(each, "at")).c_str(), text(each, "who").c_str(), text(each, "role").c_str(),
                text(each, "model").c_str(), what.c_str(), text(each, "how").c_str());
  }
  return kDone;
}

}  // namespace tandem::service::ctl
