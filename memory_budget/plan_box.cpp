#include "memory_budget/plan_box.h"

#include <algorithm>
#include <utility>

namespace tandem::budget {
namespace {

constexpr int64_t kHostBytesMax = int64_t{1} << 50;
constexpr int64_t kGib = int64_t{1} << 30;

Result<void> check_input(const BoxInput& input) {
  const HostFacts& host = input.host;
  if (host.total_bytes < 1 || host.total_bytes > kHostBytesMax || host.available_bytes < 0 ||
      host.available_bytes > host.total_bytes || host.floor_bytes < 0 ||
      host.floor_bytes > kHostBytesMax) {  // a tiny host is all below its floor
    return make_error(Errc::invalid_argument,
                      "host of " + std::to_string(host.total_bytes) + " bytes, " +
                          std::to_string(host.available_bytes) + " of them available, floor of " +
                          std::to_string(host.floor_bytes),
                      "host");
  }
  if (input.models.empty() || input.models.size() > 2 ||
      (input.models.size() == 2 && input.models[0].role == input.models[1].role)) {
    return make_error(Errc::invalid_argument, "a plan has a default model, an optional one, or both",
                      "models");
  }
  for (const BoxModel& model : input.models) {
    if (model.held_bytes < 0 || model.held_bytes > kHostBytesMax) {
      return make_error(Errc::invalid_argument,
                        "held bytes are " + std::to_string(model.held_bytes), "models");
    }
  }
  return {};
}

Result<PlannedModel> plan_one(const BoxModel& model) {
  auto plan = plan_model(model.shape, model.settings);
  if (!plan.ok()) {
    Error error = std::move(plan).error();
    error.message = std::string(role_name(model.role)) + ": " + error.message;
    error.path = std::string(role_name(model.role)) + (error.path.empty() ? "" : ".") + error.path;
    return error;
  }
  PlannedModel planned{.role = model.role,
                       .name = model.shape.name,
                       .file = model.shape.file,
                       .architecture = model.shape.architecture,
                       .engine_why = model.shape.engine_why,
                       .slots = model.settings.slots,
                       .batch_tokens = model.settings.batch_tokens,
                       .plan = std::move(plan).value()};
  planned.kv_budget_bytes =
      model.settings.kv_bytes > 0 ? model.settings.kv_bytes : planned.plan.term("kv");
  planned.rights_bytes = std::max<int64_t>(planned.plan.steady_bytes - model.held_bytes, 0);
  planned.unspent_bytes =
      std::min(planned.rights_bytes, planned.plan.term("kv") + planned.plan.term("recurrent_state") +
                                         planned.plan.term("checkpoints") + planned.plan.term("workspace"));
  return planned;
}

void add_reasons(BoxPlan& plan) {
  for (const PlannedModel& model : plan.models) {
    if (!model.plan.problem.empty()) {
      plan.reasons.push_back(std::string(role_name(model.role)) + ": " + model.plan.problem);
    }
  }
  const std::string below = " available, below the performance floor of " +
                            size_text(plan.host.floor_bytes);
  if (plan.available_after < plan.host.floor_bytes) {
    plan.reasons.push_back("with everything loaded the host has " +
                           size_text(plan.available_after) + below);
  } else if (plan.available_at_peak < plan.host.floor_bytes) {
    plan.reasons.push_back("while the " + std::string(role_name(plan.peak_role)) +
                           " model loads the host has " + size_text(plan.available_at_peak) + below);
  }
}

// Everything but the inverse.
Result<BoxPlan> evaluate(const BoxInput& input) {
  BoxPlan plan;
  plan.host = input.host;
  for (const BoxModel& model : input.models) {
    TRY_ASSIGN(plan.models.emplace_back(), plan_one(model));
  }
  std::sort(plan.models.begin(), plan.models.end(),
            [](const PlannedModel& a, const PlannedModel& b) { return a.role < b.role; });
  if (plan.models.size() == 2) {
    plan.models[0].neighbour_unspent_bytes = plan.models[1].unspent_bytes;
    plan.models[1].neighbour_unspent_bytes = plan.models[0].unspent_bytes;
  }
  plan.available_after = input.host.available_bytes;
  for (const PlannedModel& model : plan.models) plan.available_after -= model.rights_bytes;
  plan.available_at_peak = plan.available_after;
  plan.peak_role = plan.models.back().role;
  for (const PlannedModel& model : plan.models) {
    // This one loads from nothing, the other holds what it has a right to.
    const int64_t over = model.plan.peak_bytes() - model.plan.steady_bytes;
    if (plan.available_after - over < plan.available_at_peak) {
      plan.available_at_peak = plan.available_after - over;
      plan.peak_role = model.role;
    }
  }
  add_reasons(plan);
  plan.fits = plan.reasons.empty();
  return plan;
}

// By bisection over whole pages with the very judgement that it inverts: more KV never fits better.
Result<int64_t> largest_kv(BoxInput input, Role role) {
  const auto model = std::find_if(input.models.begin(), input.models.end(),
                                  [&](const BoxModel& m) { return m.role == role; });
  TRY_ASSIGN(const ModelPlan plan, plan_model(model->shape, model->settings));
  const auto kv_of = [&](int64_t pages) { return plan.kv_fixed_bytes + pages * plan.kv_page_bytes; };
  const auto fits = [&](int64_t pages) -> Result<bool> {
    model->settings.kv_bytes = kv_of(pages);
    TRY_ASSIGN(const BoxPlan tried, evaluate(input));
    return tried.fits;
  };
  int64_t good = 0;  // no page: cannot serve
  int64_t bad = std::max<int64_t>((kHostBytesMax - plan.kv_fixed_bytes) / plan.kv_page_bytes, 0) + 1;
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    TRY_ASSIGN(const bool middle_fits, fits(middle));
    (middle_fits ? good : bad) = middle;
  }
  return good == 0 ? 0 : kv_of(good);
}

Json terms_to_json(const PlannedModel& model, const HostFacts& host) {
  const ModelPlan& plan = model.plan;
  Json terms = Json::object();
  for (const PlanTerm& term : plan.terms) terms.set(term.name, term.bytes);
  for (const PlanTerm& part : plan.kv_parts) terms.set(part.name, part.bytes);
  terms.set("load_peak", plan.load_peak_bytes);
  terms.set("post_load_peak", plan.post_load_peak_bytes);
  // What must stay available beside it, whatever it holds itself.
  terms.set("neighbour_unspent_rights", model.neighbour_unspent_bytes);
  terms.set("performance_floor", host.floor_bytes);
  return terms;
}

// Value in the unit, one decimal, rounded down; no ".0".
std::string in_unit(int64_t bytes, int64_t unit) {
  const int64_t whole = bytes / unit - (bytes % unit < 0 ? 1 : 0);
  const int64_t tenths = (bytes - whole * unit) * 10 / unit;
  // -1.3 is -2 + 0.7: count from the other side.
  if (whole < 0 && tenths > 0) {
    const int64_t rest = 10 - tenths;
    const int64_t up = whole + 1;
    return (up == 0 ? "-0" : std::to_string(up)) + "." + std::to_string(rest);
  }
  return std::to_string(whole) + (tenths == 0 ? "" : "." + std::to_string(tenths));
}

}  // namespace

const PlannedModel* BoxPlan::model(Role role) const {
  const auto found = std::find_if(models.begin(), models.end(),
                                  [&](const PlannedModel& m) { return m.role == role; });
  return found == models.end() ? nullptr : &*found;
}

Result<BoxPlan> plan_box(const BoxInput& input, std::optional<Role> largest_of) {
  TRY(check_input(input));
  TRY_ASSIGN(BoxPlan plan, evaluate(input));
  plan.largest_role = largest_of.value_or(plan.models.back().role);
  if (plan.model(plan.largest_role) == nullptr) {
    return make_error(Errc::invalid_argument,
                      std::string("there is no ") + role_name(plan.largest_role) + " model", "models");
  }
  TRY_ASSIGN(plan.largest_kv, largest_kv(input, plan.largest_role));
  return plan;
}

bool KvExchange::gives_back() const {
  return problem.empty() && available_after >= available_before && at_peak_after >= at_peak_before;
}

bool KvExchange::possible() const {
  return problem.empty() && (available_after >= 0 || gives_back()) &&
         (at_peak_after >= 0 || gives_back());
}

KvExchange kv_exchange(const BoxPlan& before, const BoxPlan& after, Role role) {
  const PlannedModel* from = before.model(role);
  const PlannedModel* to = after.model(role);
  return {.role = role,
          .kv_before = from == nullptr ? 0 : from->kv_budget_bytes,
          .kv_after = to == nullptr ? 0 : to->kv_budget_bytes,
          .slots_before = from == nullptr ? 0 : from->slots,
          .slots_after = to == nullptr ? 0 : to->slots,
          .batch_before = from == nullptr ? 0 : from->batch_tokens,
          .batch_after = to == nullptr ? 0 : to->batch_tokens,
          .available_before = before.available_after,
          .available_after = after.available_after,
          .at_peak_before = before.available_at_peak,
          .at_peak_after = after.available_at_peak,
          .floor_bytes = after.host.floor_bytes,
          .fits = after.fits,
          .largest_kv = after.largest_kv,
          .problem = to == nullptr ? "" : to->plan.problem};
}

std::string exchange_text(const KvExchange& exchange) {
  const auto pair = [](int64_t from, int64_t to) {
    const bool large = std::max(from, to) >= kGib;
    return in_unit(from, large ? kGib : kGib / 1024) + " -> " +
           in_unit(to, large ? kGib : kGib / 1024) + (large ? " GiB" : " MiB");
  };
  const auto counts = [](const char* what, int64_t from, int64_t to) {
    return std::string(what) + " " + std::to_string(from) + " -> " + std::to_string(to);
  };
  std::string what = "KV " + pair(exchange.kv_before, exchange.kv_after);
  if (exchange.kv_before == exchange.kv_after) {
    if (exchange.slots_before != exchange.slots_after) {
      what = counts("slots", exchange.slots_before, exchange.slots_after);
    } else if (exchange.batch_before != exchange.batch_after) {
      what = counts("batch tokens", exchange.batch_before, exchange.batch_after);
    }
  }
  std::string text = std::string(role_name(exchange.role)) + " " + what + ": host available " +
                     pair(exchange.available_before, exchange.available_after);
  if (exchange.fits) {
    return text + ", above the performance floor of " + size_text(exchange.floor_bytes) + ": fits";
  }
  const std::string below = ", below the performance floor of " + size_text(exchange.floor_bytes);
  if (exchange.available_after < exchange.floor_bytes) {
    text += below;
  } else if (exchange.at_peak_after < exchange.floor_bytes) {
    text += ", " + size_text(exchange.at_peak_after) + " while a model loads" + below;
  }
  if (!exchange.problem.empty()) text += "; " + exchange.problem;
  return text + ": refused; largest KV that fits: " + size_text(exchange.largest_kv);
}

std::string size_text(int64_t bytes) {
  const int64_t size = bytes < 0 ? -bytes : bytes;
  if (size >= kGib) return in_unit(bytes, kGib) + " GiB";
  if (size >= kGib / 1024) return in_unit(bytes, kGib / 1024) + " MiB";
  if (size >= 1024) return in_unit(bytes, 1024) + " KiB";
  return std::to_string(bytes) + " B";
}

Json box_plan_to_json(const BoxPlan& plan) {
  Json models = Json::array();
  for (const PlannedModel& model : plan.models) {
    models.push_back(Json::object({{"role", role_name(model.role)},
                                   {"name", model.name},
                                   {"file", model.file},
                                   {"architecture", model.architecture},
                                   {"slots", model.slots},
                                   {"engine_runs_it", model.engine_why.empty()},
                                   {"engine_why", model.engine_why},
                                   {"terms", terms_to_json(model, plan.host)},
                                   {"steady", model.plan.steady_bytes},
                                   {"peak", model.plan.peak_bytes()},
                                   {"rights", model.rights_bytes},
                                   {"unspent_rights", model.unspent_bytes},
                                   {"kv_page", model.plan.kv_page_bytes},
                                   {"kv_least", model.plan.kv_least_bytes()},
                                   {"kv_useful", model.plan.kv_useful_bytes}}));
  }
  Json reasons = Json::array();
  for (const std::string& reason : plan.reasons) reasons.push_back(reason);
  return Json::object({{"verdict", plan.fits ? "fits" : "refused"},
                       {"models", std::move(models)},
                       {"host", Json::object({{"total", plan.host.total_bytes},
                                              {"available", plan.host.available_bytes},
                                              {"available_after", plan.available_after},
                                              {"available_at_peak", plan.available_at_peak},
                                              {"floor", plan.host.floor_bytes}})},
                       {"largest_that_fits", plan.largest_kv},
                       {"largest_that_fits_role", role_name(plan.largest_role)},
                       {"reasons", std::move(reasons)}});
}

}  // namespace tandem::budget
