#include "service/admin_commands.h"

#include <unistd.h>

#include "service/incident_commands.h"
#include "service/version.h"

namespace tandem::service {
namespace {

constexpr auto kStatsLimit = std::chrono::milliseconds(200);
constexpr auto kCommandLimit = std::chrono::seconds(5);
constexpr auto kSessionLifetime = std::chrono::hours(12);
constexpr int64_t kHistoryShown = 50;

Result<std::string> text_field(const Json& request, const char* field) {
  const Json* value = request.find(field);
  if (value == nullptr || !value->is_string() || value->as_string().empty()) {
    return make_error(Errc::invalid_argument, std::string("field ") + field + " must be text", field);
  }
  return value->as_string();
}

Result<bool> flag_field(const Json& request, const char* field) {
  const Json* value = request.find(field);
  if (value == nullptr) return false;
  if (!value->is_bool()) {
    return make_error(Errc::invalid_argument, std::string("field ") + field + " must be a boolean", field);
  }
  return value->as_bool();
}

Result<int64_t> integer_field(const Json& request, const char* field, int64_t otherwise) {
  const Json* value = request.find(field);
  if (value == nullptr || value->is_null()) return otherwise;
  if (!value->is_integer() || value->as_integer() < 0) {
    return make_error(Errc::invalid_argument,
                      std::string("field ") + field + " must be a number, 0 or more", field);
  }
  return value->as_integer();
}

Json key_json(const StoredKey& key) {
  Json out = Json::object();
  out.set("id", key.id)
      .set("name", key.label)
      .set("scope", scopes_text(key.scopes))
      .set("created", key.created_unix_s)
      .set("revoked", key.revoked_unix_s != 0)
      .set("revoked_at", key.revoked_unix_s == 0 ? Json() : Json(key.revoked_unix_s))
      .set("last_used", key.last_used_unix_s == 0 ? Json() : Json(key.last_used_unix_s));
  return out;
}

// Names and meanings: docs/formats/lease.md.
Json lease_to_json(const protocol::Stats& stats) {
  return Json::object({{"units", stats.lease_units},
                       {"served_us", stats.lease_served_us},
                       {"waits", stats.lease_waits},
                       {"wait_us_total", stats.lease_wait_us_total},
                       {"wait_p50_us", stats.lease_wait_p50_us},
                       {"wait_p99_us", stats.lease_wait_p99_us},
                       {"hand_overs", stats.lease_hand_overs},
                       {"broken", stats.lease_broken},
                       {"bypassed", stats.lease_bypassed},
                       {"overruns", stats.lease_overruns},
                       {"quantum_us", stats.lease_quantum_us},
                       {"solo_step_us", stats.lease_solo_step_us},
                       {"error_permille", stats.lease_error_permille}});
}

Json queue_json(const QueueFigures& figures) {
  Json out = Json::object();
  for (size_t i = 0; i < policies::kQueueClasses; ++i) {
    const auto name = policies::queue_class_name(static_cast<policies::QueueClass>(i));
    out.set(name, figures.waiting[i]);
  }
  out.set("under_way", figures.under_way)
      .set("oldest_wait_ms", figures.oldest_wait_ms)
      .set("wait_estimate_ms", figures.wait_estimate_ms)
      .set("drain_per_s", figures.drain_per_s)
      .set("key_max", figures.key_max);
  return out;
}

Json model_json(Tenant& tenant, bool with_facts) {
  ModelStatus status = tenant.status();
  Json out = Json::object();
  std::optional<protocol::Stats> stats;
  if (status.state == ModelState::ready) {
    auto answer = tenant.stats(std::chrono::steady_clock::now() + kStatsLimit);
    if (answer.ok()) stats = *answer;
  }
  Json aliases = Json::array();
  for (const std::string& alias : tenant.info().aliases) aliases.push_back(alias);
  out.set("name", tenant.info().name)
      .set("role", role_name(tenant.info().role))
      .set("aliases", std::move(aliases))
      .set("state", model_state_name(status.state))
      .set("message", status.message)
      .set("pid", status.pid)
      .set("adopted", status.adopted)
      .set("restarts", status.restarts)
      .set("ready_since", status.ready_unix_s == 0 ? Json() : Json(status.ready_unix_s))
      .set("slots", status.slots)
      .set("slots_busy", stats.has_value() ? stats->running : status.slots_busy)
      .set("queue", status.queue)
      .set("queue_max", tenant.info().queue_max)
      .set("waiting", queue_json(tenant.queue_figures()))
      .set("instance", status.instance_id)
      .set("weights", status.weights_hash);
  const TokenPace::Figures pace = tenant.pace();
  out.set("inter_token_p50_us", pace.p50_us)
      .set("inter_token_p95_us", pace.p95_us)
      .set("inter_token_p99_us", pace.p99_us);
  if (stats.has_value()) {
    out.set("resident_bytes", stats->resident_bytes)
        .set("anonymous_bytes", stats->anonymous_bytes)
        .set("kv_pages_total", stats->kv_pages_total)
        .set("kv_pages_free", stats->kv_pages_free);
    if (stats->lease_quantum_us > 0) out.set("lease", lease_to_json(*stats));
    if (with_facts) out.set("stats", stats->to_json());
  }
  if (with_facts && status.facts.has_value()) {
    out.set("profile", profile_json(tenant.profile_facts()));
    out.set("facts", status.facts->to_json());
  }
  return out;
}

}  // namespace

AdminCommands::AdminCommands(Services services)
    : services_(std::move(services)), started_(services_.clock.now()) {}

Result<Json> AdminCommands::run(const std::string& command, const Json& request,
                                const AdminServer::Peer& peer) {
  if (command == "status") return status(request);
  if (command == "model.list") return Json::object({{"models", models(false)}});
  if (command == "model.show") return model_show(request);
  if (command == "model.load") return model_command(request, ModelCommand::load);
  if (command == "model.unload") return model_command(request, ModelCommand::unload);
  if (command == "model.restart") return model_command(request, ModelCommand::restart);
  if (command == "key.add") return key_add(request);
  if (command == "key.list") return key_list();
  if (command == "key.revoke") return key_revoke(request);
  if (command == "incident.list") {
    return list_incidents(services_.incidents, services_.clock, request);
  }
  if (command == "incident.ack") return acknowledge_incident(services_.incidents, request);
  if (command == "canary.show") return services_.canary.show();
  if (command == "canary.run") {
    TRY(services_.canary.run());
    return services_.canary.show();
  }
  if (command == "config.show") return config_show();
  if (command.starts_with("budget.")) return budget(command, request, peer);
  if (command == "plan.facts") {
    TRY_ASSIGN(const BoxFacts facts, services_.budgets.facts());
    return box_facts_json(facts);
  }
  if (command == "session") {
    return Json::object({{"address", services_.address},
                         {"key", services_.keys.add_session(kSessionLifetime)}});
  }
  if (command == "shutdown") {
    services_.shut_down();
    return Json::object({{"pid", int64_t{::getpid()}}});
  }
  return make_error(Errc::not_found, "this tandemd (" + std::string(kVersion) +
                                         ") knows no command " + command.substr(0, 40));
}

Json AdminCommands::models(bool with_facts) {
  Json out = Json::array();
  for (Tenant* tenant : services_.supervisor.tenants()) {
    out.push_back(model_json(*tenant, with_facts));
  }
  return out;
}

// With "stats": true also all numbers of the engines.
Result<Json> AdminCommands::status(const Json& request) {
  TRY_ASSIGN(const bool stats, flag_field(request, "stats"));
  const auto uptime = std::chrono::duration_cast<std::chrono::seconds>(services_.clock.now() - started_);
  const ModelState first = services_.supervisor.tenants()[0]->status().state;
  const bool draining = services_.supervisor.draining();
  const StoreHealth health = services_.store.health();
  Json store = Json::object();
  store.set("records_written", services_.store.counters().records_written.load())
      .set("records_dropped", services_.store.counters().records_dropped.load())
      .set("records_waiting", services_.store.counters().records_waiting.load())
      .set("queue", static_cast<int64_t>(services_.store.queued()))
      .set("writable", health.writable)
      .set("reason", health.writable ? "" : health.reason);
  Json out = Json::object();
  out.set("version", std::string(kVersion))
      .set("pid", int64_t{::getpid()})
      .set("uptime_s", int64_t{uptime.count()})
      .set("address", services_.address)
      .set("ready", first == ModelState::ready && !draining)
      .set("draining", draining)
      .set("active_answers", services_.active_answers())
      .set("streams_max", services_.config.limits.streams)
      .set("models", models(stats))
      .set("memory", pressure_json(services_.pressure()))
      .set("pacing", services_.pacing())
      .set("incidents_open", static_cast<int64_t>(services_.incidents.open_count()))
      .set("store", std::move(store));
  return out;
}

Result<Tenant*> AdminCommands::tenant(const Json& request) {
  TRY_ASSIGN(const std::string name, text_field(request, "model"));
  TRY_ASSIGN(Model* const model, services_.supervisor.resolve(name));
  for (Tenant* tenant : services_.supervisor.tenants()) {
    if (tenant == model) return tenant;
  }
  return make_error(Errc::internal, "a model without a tenant");
}

Result<Json> AdminCommands::model_show(const Json& request) {
  TRY_ASSIGN(Tenant* const found, tenant(request));
  return Json::object({{"model", model_json(*found, true)}});
}

Result<Json> AdminCommands::model_command(const Json& request, ModelCommand command) {
  TRY_ASSIGN(Tenant* const found, tenant(request));
  TRY_ASSIGN(const std::future<void> done,
             services_.supervisor.post(found->info().role, command));
  // The answer shows the state after the command: who waits for a new state must not see the old one.
  if (done.wait_for(kCommandLimit) != std::future_status::ready) {
    return make_error(Errc::unavailable, "the supervisor is busy; look at tandemctl status");
  }
  return Json::object({{"model", model_json(*found, false)}});
}

// What is used: the file, and over it what was set at run time, which is named.
Result<Json> AdminCommands::config_show() {
  Config used = services_.config;
  std::string notes;
  Json overrides = Json::object();
  const auto one = [&](Role role, ModelConfig& model) {
    const BudgetState state = services_.budgets.state(role);
    const ModelBudget file = budget_of(model);
    Json of_model = Json::object();
    for (const BudgetField field : kBudgetFields) {
      if (!state.is_overridden(field)) continue;
      notes += std::string("# model.") + role_name(role) + "." + budget_field_name(field) +
               ": set by tandemctl budget; the file says " + budget_value_text(field, file[field]) +
               "\n";
      of_model.set(budget_field_name(field), Json::object({{"value", state.values[field]},
                                                           {"configured", file[field]}}));
    }
    if (state.any_overridden()) overrides.set(role_name(role), std::move(of_model));
    put_budget(state.values, model);
  };
  one(Role::default_model, used.default_model);
  if (used.optional_model.has_value()) one(Role::optional_model, *used.optional_model);
  return Json::object({{"config", config_to_json(used)},
                       {"overrides", std::move(overrides)},
                       {"toml", notes + config_to_toml(used)}});
}

Result<Json> AdminCommands::budget(const std::string& command, const Json& request,
                                   const AdminServer::Peer& peer) {
  if (command == "budget.show") return Json::object({{"models", services_.budgets.show()}});
  if (command == "budget.history") return budget_history(request);
  if (command == "budget.set") return budget_change(request, peer, false);
  if (command == "budget.undo") return budget_change(request, peer, true);
  if (command == "budget.job") {
    TRY_ASSIGN(const int64_t number, integer_field(request, "job", 0));
    return services_.budgets.job(number);
  }
  return make_error(Errc::not_found, "no command " + command.substr(0, 40));
}

// Answers at once with the number of a job: a change may take as long as a load.
Result<Json> AdminCommands::budget_change(const Json& request, const AdminServer::Peer& peer, bool undo) {
  BudgetOrder order{.who = peer.name, .uid = peer.uid};
  TRY_ASSIGN(order.force, flag_field(request, "force"));
  TRY_ASSIGN(order.dry_run, flag_field(request, "dry_run"));
  if (undo) {
    TRY_ASSIGN(order.undo, integer_field(request, "id", 0));
  } else {
    TRY_ASSIGN(Tenant* const found, tenant(request));
    order.role = found->info().role;
    TRY_ASSIGN(order.wish, read_budget_wish(request));
  }
  TRY_ASSIGN(const int64_t job, services_.budgets.order(std::move(order)));
  return Json::object({{"job", job}});
}

Result<Json> AdminCommands::budget_history(const Json& request) {
  TRY_ASSIGN(const int64_t limit, integer_field(request, "limit", kHistoryShown));
  TRY_ASSIGN(Json changes, services_.budgets.history(limit));
  return Json::object({{"changes", std::move(changes)}});
}

Result<Json> AdminCommands::key_add(const Json& request) {
  TRY_ASSIGN(const std::string name, text_field(request, "name"));
  TRY_ASSIGN(const std::string scope, text_field(request, "scope"));
  TRY_ASSIGN(const Scopes scopes, parse_scopes(scope));
  TRY_ASSIGN(const NewKey made, services_.keys.add(name, scopes));
  Json key = key_json(made.stored);
  key.set("key", made.key);
  return Json::object({{"key", std::move(key)}});
}

Result<Json> AdminCommands::key_list() {
  TRY_ASSIGN(const std::vector<StoredKey> stored, services_.keys.list());
  Json keys = Json::array();
  for (const StoredKey& key : stored) keys.push_back(key_json(key));
  return Json::object({{"keys", std::move(keys)}});
}

Result<Json> AdminCommands::key_revoke(const Json& request) {
  TRY_ASSIGN(const std::string id, text_field(request, "id"));
  TRY(services_.keys.revoke(id));
  return Json::object({{"id", id}, {"revoked", true}});
}

}  // namespace tandem::service
