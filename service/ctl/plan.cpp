// tandemctl plan: what two models would need on this box, or another, before anything is loaded.
#include <cstdio>
#include <string>

#include "memory_budget/plan_box.h"
#include "service/ctl/commands.h"
#include "service/ctl/plan_input.h"

namespace tandem::service::ctl {
namespace {

// The same plan with the least KV that serves: what this model's KV costs the host.
Result<budget::BoxPlan> without_kv(budget::BoxInput input, const budget::BoxPlan& plan) {
  input.models.back().settings.kv_bytes = plan.models.back().plan.kv_least_bytes();
  return budget::plan_box(input);
}

void print_row(const std::string& name, const budget::BoxPlan& plan, const char* term) {
  std::string row = "  " + name;
  row.resize(26, ' ');
  bool any = false;
  for (const budget::PlannedModel& model : plan.models) {
    const int64_t bytes = model.plan.term(term);
    any = any || bytes != 0;
    std::string cell = bytes == 0 ? "-" : budget::size_text(bytes);
    cell.insert(0, cell.size() < 12 ? 12 - cell.size() : 0, ' ');
    row += cell;
  }
  if (any) std::printf("%s\n", row.c_str());
}

void print_sums(const char* name, const budget::BoxPlan& plan,
                int64_t (*bytes_of)(const budget::ModelPlan&)) {
  std::printf("%-26s", name);
  for (const budget::PlannedModel& model : plan.models) {
    std::printf("%12s", budget::size_text(bytes_of(model.plan)).c_str());
  }
  std::printf("\n");
}

void print_models(const budget::BoxPlan& plan) {
  for (const budget::PlannedModel& model : plan.models) {
    std::printf("%-9s %s (%s), %lld slots\n", budget::role_name(model.role), model.file.c_str(),
                model.architecture.c_str(), static_cast<long long>(model.slots));
    if (!model.engine_why.empty()) {
      std::printf("          planned only: %s\n", model.engine_why.c_str());
    }
  }
  std::printf("\n%-26s", "TERM");
  for (const budget::PlannedModel& model : plan.models) {
    std::printf("%12s", model.role == budget::Role::default_model ? "DEFAULT" : "OPTIONAL");
  }
  std::printf("\n");
  print_row("weights", plan, "weights");
  print_row("KV of full layers", plan, "kv_full");
  print_row("KV of sliding layers", plan, "kv_sliding");
  print_row("KV of the draft head", plan, "kv_draft");
  print_row("recurrent state", plan, "recurrent_state");
  print_row("checkpoints of states", plan, "checkpoints");
  print_row("draft head", plan, "draft_head");
  print_row("workspace", plan, "workspace");
  print_row("masks of grammars", plan, "masks");
  print_row("graphs", plan, "graphs");
  print_row("tokenizer", plan, "tokenizer");
  print_row("host part", plan, "host");
  print_sums("held while it serves", plan,
             [](const budget::ModelPlan& model) { return model.steady_bytes; });
  print_sums("peak of loading", plan,
             [](const budget::ModelPlan& model) { return model.load_peak_bytes; });
  print_sums("peak after loading", plan,
             [](const budget::ModelPlan& model) { return model.post_load_peak_bytes; });
  std::printf("%-26s", "neighbour's unspent rights");
  for (const budget::PlannedModel& model : plan.models) {
    std::printf("%12s", budget::size_text(model.neighbour_unspent_bytes).c_str());
  }
  std::printf("\n");
}

void print_host(const budget::BoxPlan& plan, bool running) {
  if (running) {
    std::printf("%-26s", "not taken yet");
    for (const budget::PlannedModel& model : plan.models) {
      std::printf("%12s", budget::size_text(model.rights_bytes).c_str());
    }
    std::printf("\n");
  }
  std::printf(running ? "\nhost of %s: available %s now, %s with every right used"
                      : "\nhost of %s: available %s before, %s with everything loaded",
              budget::size_text(plan.host.total_bytes).c_str(),
              budget::size_text(plan.host.available_bytes).c_str(),
              budget::size_text(plan.available_after).c_str());
  if (plan.available_at_peak < plan.available_after) {
    std::printf(", %s while the %s model loads",
                budget::size_text(plan.available_at_peak).c_str(),
                budget::role_name(plan.peak_role));
  }
  std::printf("; performance floor %s\n", budget::size_text(plan.host.floor_bytes).c_str());
}

void print_verdict(const budget::BoxPlan& plan, const budget::BoxPlan& least) {
  std::printf("%s\n", budget::exchange_text(budget::kv_exchange(least, plan, plan.largest_role)).c_str());
  std::string verdict = plan.fits ? "fits" : "refused";
  for (const std::string& reason : plan.reasons) {
    verdict += (&reason == plan.reasons.data() ? ": " : "; ") + reason;
  }
  std::printf("%s; largest %s KV that fits: %s\n", verdict.c_str(),
              budget::role_name(plan.largest_role),
              plan.largest_kv == 0 ? "none" : budget::size_text(plan.largest_kv).c_str());
}

}  // namespace

int run_plan(const Context& context) {
  const auto request = read_plan_request(context);
  if (!request.ok()) return report(request.error());
  const auto input = describe_box(request->facts, ask_engine);
  if (!input.ok()) return report(input.error());
  const auto plan = budget::plan_box(*input);
  if (!plan.ok()) return report(plan.error());
  if (context.arguments().json) {
    print_json(budget::box_plan_to_json(*plan).set("running", request->running));
    return kDone;
  }
  const auto least = without_kv(*input, *plan);
  if (!least.ok()) return report(least.error());
  print_models(*plan);
  print_host(*plan, request->running);
  print_verdict(*plan, *least);
  return kDone;
}

}  // namespace tandem::service::ctl
