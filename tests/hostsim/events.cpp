// The events of a script, carried out.
#include <algorithm>

#include "memory_budget/plan_box.h"
#include "tests/hostsim/simulation.h"

namespace tandem_tests {

using tandem::Errc;
using tandem::Json;
using tandem::make_error;
using tandem::Result;
namespace budget = tandem::budget;
using budget::Role;

namespace {

constexpr int64_t kKvPageBytes = 16 * budget::kMiB;
constexpr int64_t kKvTokenBytes = kKvPageBytes / budget::kShapePageTokens;

// A model that the planner knows nothing of but its sum: weights and overhead as weights, one kind
// of layer whose pages are 16 MiB.
budget::BoxModel box_model(Role role, const SimProfile& profile, int64_t kv_bytes, int64_t slots) {
  budget::ModelShape shape;
  shape.name = role_name(role);
  shape.weight_bytes = std::max<int64_t>(0, profile.weights_bytes - budget::kHostBytes);
  shape.context_tokens = int64_t{1} << 24;
  shape.layers = {budget::LayerKind::full};
  shape.full_bytes_per_token = kKvTokenBytes;
  shape.engine = budget::EngineFigures{.page_bytes = kKvPageBytes};
  return {.role = role,
          .shape = shape,
          .settings = {.kv_bytes = kv_bytes, .slots = slots, .context_tokens = shape.context_tokens},
          .held_bytes = 0};
}

Json::Object exchange_fields(const budget::KvExchange& exchange) {
  const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(budget::kGiB); };
  return {{"verdict", exchange.fits ? "fits" : "refused"},
          {"available_before_gib", gib(exchange.available_before)},
          {"available_after_gib", gib(exchange.available_after)},
          {"floor_gib", gib(exchange.floor_bytes)},
          {"largest_that_fits_gib", gib(exchange.largest_kv)},
          {"text", budget::exchange_text(exchange)}};
}

}  // namespace

// The plan's exchange first; a refused change goes no further unless it is forced.
Result<void> Simulation::budget(Fields& f) {
  std::string who = "optional";
  bool force = false;
  TRY(f.text("who", who));
  TRY_ASSIGN(const Role role, parse_role(who));
  const auto found = tenants_.find(role);
  if (found == tenants_.end()) return make_error(Errc::not_found, "no tenant " + who);
  SimTenant& tenant = found->second;
  int64_t kv = tenant.profile.profile.kv_bytes;
  int64_t slots = tenant.profile.profile.slots;
  TRY(f.bytes("kv", kv));
  TRY(f.integer("slots", slots));
  TRY(f.flag("force", force));

  budget::BoxInput input;
  int64_t others = host_.setup.idle_available_bytes - host_.available();
  for (const auto& [each, model] : tenants_) {
    const auto& p = model.profile;
    input.models.push_back(box_model(each, p, p.profile.kv_bytes, p.profile.slots));
    others -= host_.process(each).held_bytes();
  }
  input.host = {.total_bytes = host_.setup.total_bytes,
                .available_bytes = std::max<int64_t>(0, host_.setup.idle_available_bytes - std::max<int64_t>(0, others)),
                .floor_bytes = guard_.floors().yellow_leave};
  TRY_ASSIGN(const budget::BoxPlan before, budget::plan_box(input, role));
  for (budget::BoxModel& model : input.models) {
    if (model.role == role) model = box_model(role, tenant.profile, kv, slots);
  }
  TRY_ASSIGN(const budget::BoxPlan after, budget::plan_box(input, role));
  const budget::KvExchange exchange = budget::kv_exchange(before, after, role);
  record("plan", exchange_fields(exchange));
  // As tandemd decides (service/budget_keeper).
  const bool as_is = exchange.fits || exchange.gives_back();
  if (!as_is && !(force && exchange.possible())) return {};

  tenant.profile.actual_peak_bytes += kv - tenant.profile.profile.kv_bytes;
  tenant.profile.profile.peak_bytes += kv - tenant.profile.profile.kv_bytes;
  tenant.profile.profile.steady_bytes += kv - tenant.profile.profile.kv_bytes;
  tenant.profile.profile.kv_bytes = kv;
  tenant.profile.profile.slots = slots;
  set_profile(role);
  machine_.request_restart(role);
  return {};
}

Result<bool> Simulation::wish(const SimEvent& event, Fields& f) {
  if (event.what == "drop_caches") {
    if (const auto allowed = machine_.may_reclaim(look()); !allowed.ok()) {
      record("refused", {{"what", event.what}, {"text", allowed.error().message}});
    } else {
      record("done", {{"what", event.what}});
      host_.reclaim(now_ms_);
    }
    return true;
  }
  if (event.what == "heavy_work") {
    std::string name = "work";
    TRY(f.text("name", name));
    record(machine_.may_do_heavy_work() ? "done" : "refused", {{"what", name}});
    return true;
  }
  if (event.what == "budget") {
    TRY(budget(f));
    return true;
  }
  if (event.what != "start" && event.what != "stop" && event.what != "restart" &&
      event.what != "profile") {
    return false;
  }
  std::string who = "optional";
  TRY(f.text("who", who));
  TRY_ASSIGN(const Role role, parse_role(who));
  const auto found = tenants_.find(role);
  if (found == tenants_.end()) return make_error(Errc::not_found, "no tenant " + who);
  if (event.what == "start") machine_.request_start(role);
  if (event.what == "stop") machine_.request_stop(role);
  if (event.what == "restart") machine_.request_restart(role);
  if (event.what == "profile") {
    const Json* profile = f.raw("profile");
    if (profile == nullptr) return make_error(Errc::invalid_argument, "profile needs a profile");
    TRY_ASSIGN(found->second.profile, parse_profile(*profile));
    if (const Json* good = f.raw("known_good")) {
      TRY_ASSIGN(found->second.known_good, parse_profile(*good));
    }
    set_profile(role);
  }
  return true;
}

Result<bool> Simulation::host_event(const SimEvent& event, Fields& f) {
  int64_t to = 0;
  int64_t over_ms = 0;
  if (event.what == "grow" || event.what == "available" || event.what == "cache") {
    std::string who = "other processes";
    TRY(f.text("who", who));
    TRY(f.bytes("to", to));
    TRY(f.seconds("over_s", over_ms));
    const auto role = parse_role(who);
    if (event.what == "cache") {
      host_.cache.go(now_ms_, to, over_ms);
    } else if (event.what == "available") {
      host_.grow_until(who, to, over_ms);
    } else {
      (role.ok() ? host_.process(*role).extra : host_.outsider(who)).go(now_ms_, to, over_ms);
    }
  } else if (event.what == "psi") {
    TRY(f.number("some", host_.psi_some));
    TRY(f.number("full", host_.psi_full));
    if (!(host_.psi_some >= 0 && host_.psi_some <= 100 && host_.psi_full >= 0 && host_.psi_full <= 100)) {
      return make_error(Errc::invalid_argument, "psi is in percent");
    }
  } else if (event.what == "psi_trigger") {
    host_.psi_trigger = true;
  } else if (event.what == "nvrm") {
    int64_t lines = 1;
    TRY(f.integer("lines", lines));
    host_.driver_lines += lines;
  } else if (event.what == "stalls" || event.what == "swap_in") {
    std::string kind = "allocstall";
    int64_t per_s = 0;
    over_ms = 1000;
    TRY(f.text("kind", kind));
    TRY(f.bytes("per_s", per_s));
    TRY(f.seconds("over_s", over_ms));
    Ramp& ramp = event.what == "swap_in" ? host_.swap_in_bytes
                 : kind == "compact_fail" ? host_.compact_fails
                                          : host_.allocstalls;
    ramp.go(now_ms_, ramp.at(now_ms_) + per_s / 1000 * over_ms + per_s % 1000 * over_ms / 1000, over_ms);
  } else if (event.what == "blocks") {
    TRY(f.integer("to", host_.big_blocks));
    TRY(f.integer("compacted", host_.setup.big_blocks_compacted));
  } else if (event.what == "canary") {
    int64_t canary = 100;
    int64_t bandwidth = 100;
    TRY(f.integer("percent", canary));
    TRY(f.integer("bandwidth", bandwidth));
    if (canary > 1000 || bandwidth > 1000) return make_error(Errc::invalid_argument, "canary is in percent");
    host_.canary = {.canary_percent = static_cast<int32_t>(canary),
                    .bandwidth_percent = static_cast<int32_t>(bandwidth)};
    TRY(f.flag("busy", host_.canary.optional_busy));
    record("canary", {{"cause", loss_cause_name(loss_cause(host_.canary))}});
  } else {
    return false;
  }
  return true;
}

Result<bool> Simulation::process_event(const SimEvent& event, Fields& f) {
  std::string who = "optional";
  TRY(f.text("who", who));
  TRY_ASSIGN(const Role role, parse_role(who));
  if (tenants_.count(role) == 0) return make_error(Errc::not_found, "no tenant " + who);
  SimProcess& process = host_.process(role);
  if (event.what == "exit") {
    process.exit(now_ms_);
  } else if (event.what == "unspent") {
    TRY(f.bytes("to", process.unspent_bytes));
  } else {
    TRY(parse_behaviour(f, process.behaviour));
  }
  return true;
}

Result<void> Simulation::carry_out(const SimEvent& event) {
  Fields f(event.fields);
  TRY_ASSIGN(bool done, wish(event, f));
  if (!done) {
    TRY_ASSIGN(done, host_event(event, f));
  }
  if (!done) {
    TRY_ASSIGN(done, process_event(event, f));
  }
  return {};
}

}  // namespace tandem_tests
