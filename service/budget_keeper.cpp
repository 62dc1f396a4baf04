#include "service/budget_keeper.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "service/engine_binary.h"

namespace tandem::service {
namespace {

constexpr size_t kJobsKept = 16;

size_t index(Role role) { return static_cast<size_t>(role); }

bool moves_memory(const ModelBudget& before, const ModelBudget& after) {
  return std::any_of(kBudgetFields.begin(), kBudgetFields.end(), [&](BudgetField field) {
    return field != BudgetField::prompt_tokens_max && before[field] != after[field];
  });
}

// What differs, for the engine. Where the budget leaves KV to the slots it changes with them.
EngineBudget engine_budget(const ModelBudget& before, const ModelBudget& after, int64_t kv_before,
                           int64_t kv_after) {
  EngineBudget out;
  if (kv_before != kv_after) out.kv_bytes = kv_after;
  if (before[BudgetField::slots] != after[BudgetField::slots]) out.slots = after[BudgetField::slots];
  if (before[BudgetField::batch_tokens] != after[BudgetField::batch_tokens]) {
    out.batch_tokens = after[BudgetField::batch_tokens];
  }
  return out;
}

Json exchange_json(const budget::KvExchange& exchange) {
  return Json::object({{"kv_before", exchange.kv_before},
                       {"kv_after", exchange.kv_after},
                       {"available_before", exchange.available_before},
                       {"available_after", exchange.available_after},
                       {"available_at_peak", exchange.at_peak_after},
                       {"floor", exchange.floor_bytes},
                       {"largest_that_fits", exchange.largest_kv}});
}

// Why a change is not made, for people.
std::string refusal(const budget::KvExchange& exchange, bool forced) {
  if (!exchange.problem.empty()) return "such a model could not serve: --force does not help";
  if (!exchange.possible()) return "the host does not have the memory: --force does not help";
  return forced ? "" : "--force changes it all the same";
}

std::optional<BudgetRecord> newest_of(const std::vector<BudgetRecord>& history, const char* role) {
  for (const BudgetRecord& record : history) {
    if (record.role == role) return record;
  }
  return std::nullopt;
}

}  // namespace

Result<BudgetKeeper::Start> BudgetKeeper::resolve(const Config& configured, BudgetBook& book,
                                                  const Clock& clock) {
  Start out{.config = configured, .states = {}};
  TRY_ASSIGN(const std::vector<BudgetRecord> history, book.budget_history());
  const auto one = [&](Role role, ModelConfig& config) -> Result<void> {
    ResolvedBudget resolved =
        resolve_budget(role_name(role), config, newest_of(history, role_name(role)));
    if (resolved.ended.has_value()) {
      BudgetRecord& ended = *resolved.ended;
      ended.at_unix_s = clock.unix_seconds();
      ended.who = "configuration file";
      log::warning("budget of model " + config.name + ": " + ended.text + ": " +
                   budget_change_text(ended.before.values, ended.after.values));
      // Where it cannot be written now, the next start says it again.
      if (const auto kept = book.append_budget(ended); !kept.ok()) {
        log::warning("the end of a budget is not recorded: " + kept.error().message);
      }
    }
    out.states[index(role)] = resolved.state;
    put_budget(resolved.state.values, config);
    return {};
  };
  TRY(one(Role::default_model, out.config.default_model));
  if (out.config.optional_model.has_value()) {
    TRY(one(Role::optional_model, *out.config.optional_model));
  }
  return out;
}

BudgetKeeper::BudgetKeeper(Parts parts, const Start& start)
    : parts_(std::move(parts)), states_(start.states) {}

BudgetKeeper::~BudgetKeeper() { stop(); }

void BudgetKeeper::start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void BudgetKeeper::stop() {
  queue_.close();
  if (thread_.joinable()) thread_.join();
}

void BudgetKeeper::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const auto work = queue_.pop();
    if (!work.has_value()) return;
    Result<Json> result = carry_out(work->order);
    if (!result.ok()) log::warning("budget: not changed: " + result.error().message);
    MutexLock lock(mutex_);
    for (Job& job : jobs_) {
      if (job.number != work->number) continue;
      job.done = true;
      job.result = std::move(result);
    }
    working_ = 0;
  }
}

Result<int64_t> BudgetKeeper::order(BudgetOrder order) {
  MutexLock lock(mutex_);
  if (working_ != 0) {
    return make_error(Errc::exhausted, "a change of budgets is under way: one at a time");
  }
  const int64_t number = next_job_++;
  if (!queue_.try_push({.number = number, .order = std::move(order)})) {
    return make_error(Errc::exhausted, "too many changes of budgets wait");
  }
  working_ = number;
  jobs_.push_back({.number = number, .doing = "starts", .done = false, .result = std::nullopt});
  if (jobs_.size() > kJobsKept) jobs_.pop_front();
  return number;
}

Result<Json> BudgetKeeper::job(int64_t number) const {
  MutexLock lock(mutex_);
  for (const Job& job : jobs_) {
    if (job.number != number) continue;
    Json out = Json::object({{"job", number}, {"doing", job.doing}});
    if (!job.done) return out.set("state", "working");
    CHECK(job.result.has_value());
    if (!job.result->ok()) return job.result->error();
    return out.set("state", "done").set("result", **job.result);
  }
  return make_error(Errc::not_found, "no job " + std::to_string(number));
}

void BudgetKeeper::say(std::string doing) {
  MutexLock lock(mutex_);
  for (Job& job : jobs_) {
    if (job.number == working_) job.doing = std::move(doing);
  }
}

const ModelConfig* BudgetKeeper::config_of(Role role) const {
  if (role == Role::default_model) return &parts_.configured.default_model;
  return parts_.configured.optional_model.has_value() ? &*parts_.configured.optional_model : nullptr;
}

BudgetState BudgetKeeper::state(Role role) const {
  MutexLock lock(mutex_);
  return states_[index(role)];
}

std::optional<ModelBudget> BudgetKeeper::configured(Role role) const {
  const ModelConfig* config = config_of(role);
  if (config == nullptr) return std::nullopt;
  return budget_of(*config);
}

Json BudgetKeeper::show() const {
  Json models = Json::array();
  for (const Role role : {Role::default_model, Role::optional_model}) {
    const ModelConfig* config = config_of(role);
    if (config == nullptr) continue;
    const BudgetTarget::Status status = parts_.target.status(role);
    models.push_back(Json::object({{"role", role_name(role)},
                                   {"name", config->name},
                                   {"state", model_state_name(status.state)},
                                   {"budget", budget_state_json(state(role), budget_of(*config))}}));
  }
  return models;
}

Result<Json> BudgetKeeper::history(int64_t limit) const {
  TRY_ASSIGN(const std::vector<BudgetRecord> records, parts_.book.budget_history());
  Json out = Json::array();
  for (const BudgetRecord& record : records) {
    if (limit-- <= 0) break;
    out.push_back(budget_record_json(record));
  }
  return out;
}

Result<BoxFacts> BudgetKeeper::facts() const {
  BoxFacts out{.engine = parts_.configured.engines.binary, .host = {}, .models = {}};
  if (out.engine.empty()) out.engine = engine_binary_beside_us();
  TRY_ASSIGN(out.host, parts_.host());
  for (const Role role : {Role::default_model, Role::optional_model}) {
    const ModelConfig* config = config_of(role);
    if (config == nullptr || !is_planned(*config)) continue;
    ModelConfig now = *config;
    put_budget(state(role).values, now);
    BoxModelFacts model = model_facts(role, now);
    const BudgetTarget::Status status = parts_.target.status(role);
    model.state = model_state_name(status.state);
    model.held_bytes = parts_.held(status.pid);
    out.models.push_back(std::move(model));
  }
  return out;
}

BoxFacts BudgetKeeper::facts_with(Role role, const ModelBudget& budget, BoxFacts facts) const {
  for (BoxModelFacts& model : facts.models) {
    if (model.role != role) continue;
    ModelConfig config = *config_of(role);
    put_budget(budget, config);
    model.settings = model_facts(model.role, config).settings;
  }
  return facts;
}

// What the order comes to, before it is judged.
Result<BudgetRecord> BudgetKeeper::wanted(const BudgetOrder& order) const {
  BudgetRecord out{.at_unix_s = parts_.clock.unix_seconds(), .who = order.who, .uid = order.uid};
  Role role = order.role;
  if (order.undo.has_value()) {
    TRY_ASSIGN(const std::vector<BudgetRecord> history, parts_.book.budget_history());
    TRY_ASSIGN(const BudgetRecord undone, find_undoable(history, *order.undo));
    role = undone.role == role_name(Role::default_model) ? Role::default_model : Role::optional_model;
    const ModelConfig* config = config_of(role);
    if (config == nullptr || config->name != undone.model || config->file != undone.file) {
      return make_error(Errc::invalid_argument,
                        "change " + std::to_string(undone.id) + " was made for model " + undone.model +
                            ", which is not the " + undone.role + " model any more");
    }
    out.act = BudgetAct::undo;
    out.undoes = undone.id;
    out.after = undone_state(undone, budget_of(*config));
  }
  const ModelConfig* config = config_of(role);
  if (config == nullptr) return make_error(Errc::not_found, "no optional model is configured", "model");
  out.role = role_name(role);
  out.model = config->name;
  out.file = config->file;
  out.configured = budget_of(*config);
  out.before = state(role);
  if (order.undo.has_value()) return out;
  if (order.wish.empty()) {
    return make_error(Errc::invalid_argument,
                      "nothing to change: name kv, slots, batch_tokens or prompt_tokens_max");
  }
  out.after = wished_state(out.before, order.wish, out.configured);
  return out;
}

Result<BudgetKeeper::Planned> BudgetKeeper::plan_change(Role role, const BudgetRecord& record) const {
  TRY_ASSIGN(const BoxFacts now, facts());
  // Four questions, most of them the same: each costs a process that reads a file's vocabulary.
  std::map<std::string, Json> described;
  const Describer once = [&](const DescribeQuestion& question) -> Result<Json> {
    std::string key = question.file;
    for (const int64_t number : {question.slots, question.context_tokens, question.batch_tokens, question.threads}) {
      key += '\0' + std::to_string(number);
    }
    const auto known = described.find(key);
    if (known != described.end()) return known->second;
    TRY_ASSIGN(Json answer, parts_.describe(question));
    return described.emplace(std::move(key), std::move(answer)).first->second;
  };
  const auto plan = [&](const ModelBudget& budget) -> Result<budget::BoxPlan> {
    TRY_ASSIGN(const budget::BoxInput input, describe_box(facts_with(role, budget, now), once));
    return budget::plan_box(input, role);
  };
  TRY_ASSIGN(const budget::BoxPlan before, plan(record.before.values));
  TRY_ASSIGN(const budget::BoxPlan after, plan(record.after.values));
  const budget::KvExchange exchange = budget::kv_exchange(before, after, role);
  return Planned{.exchange = exchange,
                 .plan = budget::box_plan_to_json(after),
                 .text = budget::exchange_text(exchange)};
}

// Error: nothing was changed.
Result<BudgetKeeper::Applied> BudgetKeeper::apply(Role role, BudgetRecord& record,
                                                  const budget::KvExchange& exchange) {
  const ModelBudget& before = record.before.values;
  const ModelBudget& after = record.after.values;
  const bool moves = moves_memory(before, after);
  const bool ready = parts_.target.status(role).state == ModelState::ready;
  if (moves) {
    const std::string busy = parts_.target.heavy_work_under_way();
    if (!busy.empty()) {
      return make_error(Errc::unavailable, busy + ": no budget is changed meanwhile; try again then");
    }
  }
  bool live = false;
  std::string pending;
  const bool at_start_only = config_of(role)->is_foreign();
  record.how = !moves ? "live" : ready ? "restart" : "next_load";
  if (moves && ready && !at_start_only) {
    say("changes the running engine");
    const auto resized = parts_.target.resize(role, engine_budget(before, after, exchange.kv_before,
                                                                  exchange.kv_after));
    live = resized.ok();
    if (live) record.how = "live";
    if (live) pending = *resized;
    if (!live && resized.error().code != Errc::invalid_argument) return resized.error();
  }
  const auto kept = parts_.book.append_budget(record);
  if (!kept.ok()) {
    // What nobody would know of after a restart must not hold now either.
    if (live) {
      (void)parts_.target.resize(
          role, engine_budget(after, before, exchange.kv_after, exchange.kv_before));
    }
    return make_error(kept.error().code, "the change cannot be kept, nothing was changed: " +
                                             kept.error().message);
  }
  record.id = *kept;
  parts_.target.use(role, after);
  MutexLock lock(mutex_);
  states_[index(role)] = record.after;
  return Applied{.how = record.how, .pending = std::move(pending)};
}

Result<Json> BudgetKeeper::carry_out(const BudgetOrder& order) {
  say("plans");
  TRY_ASSIGN(BudgetRecord record, wanted(order));
  const Role role = record.role == role_name(Role::default_model) ? Role::default_model
                                                                  : Role::optional_model;
  const std::string change = budget_change_text(record.before.values, record.after.values);
  Json out = Json::object({{"role", record.role}, {"model", record.model}, {"change", change}});
  bool allowed = true;
  bool fits = true;
  std::string why;
  budget::KvExchange exchange;
  record.text = record.role + " " + (change.empty() ? "stays as it is" : change);
  if (moves_memory(record.before.values, record.after.values)) {
    TRY_ASSIGN(Planned planned, plan_change(role, record));
    exchange = planned.exchange;
    record.text = planned.text;
    if (config_of(role)->is_foreign()) {
      record.text += "; by an ordered restart, since " + config_of(role)->engine + " takes its budgets at its start only";
    }
    fits = exchange.fits;
    const bool as_is = fits || exchange.gives_back();
    const std::string frozen = exchange.gives_back() ? "" : parts_.frozen();
    allowed = frozen.empty() && (as_is || (order.force && exchange.possible()));
    record.forced = !as_is && allowed;
    if (!allowed) why = frozen.empty() ? refusal(exchange, order.force) : frozen + ": --force does not help";
    if (!fits && as_is) why = "it takes nothing from the host: changed all the same";
    out.set("exchange", exchange_json(exchange)).set("plan", std::move(planned.plan));
  }
  out.set("verdict", fits ? "fits" : "refused")
      .set("text", record.text)
      .set("allowed", allowed)
      .set("forced", record.forced)
      .set("dry_run", order.dry_run)
      .set("why", why)
      .set("before", budget_state_json(record.before, record.configured))
      .set("after", budget_state_json(record.after, record.configured));
  const bool nothing = record.before == record.after;
  if (!allowed || order.dry_run || nothing) {
    return out.set("applied", false).set("how", "none").set("id", Json());
  }
  TRY_ASSIGN(const Applied applied, apply(role, record, exchange));
  const std::string& how = applied.how;
  log::info("budget of model " + record.model + ": " + change + " (" + how + ", by " + record.who +
            (record.forced ? ", forced" : "") + "): " + record.text);
  out.set("applied", true).set("how", how).set("id", record.id).set("pending", applied.pending);
  if (how == "restart") {
    say("restarts the model in order");
    const auto restarted = parts_.target.restart(role);
    out.set("restart_error", restarted.ok() ? Json() : Json(restarted.error().message));
    if (!restarted.ok()) {
      // An engine of others that does not come up with these may never do so.
      const bool back = config_of(role)->is_foreign() && !record.forced && !parts_.target.closing();
      out.set("rolled_back", back);
      if (back) TRY(take_back(role, record, exchange, "the model did not come back with it: " + restarted.error().message, out));
      return out;
    }
  }
  if (how != "next_load") TRY(check_neighbour(role, record, exchange, out));
  return out;
}

Result<void> BudgetKeeper::check_neighbour(Role role, const BudgetRecord& made,
                                           const budget::KvExchange& exchange, Json& out) {
  if (parts_.check_change == nullptr || !moves_memory(made.before.values, made.after.values)) return {};
  say("asks the canary what the default model loses");
  const std::string loss = parts_.check_change();
  out.set("neighbour", loss).set("rolled_back", false);
  if (loss.empty()) return {};
  log::warning("budget of model " + made.model + ": " + loss);
  if (made.forced) return {};  // somebody wanted it against advice
  out.set("rolled_back", true);
  return take_back(role, made, exchange, loss, out);
}

Result<void> BudgetKeeper::take_back(Role role, const BudgetRecord& made, const budget::KvExchange& exchange,
                                     const std::string& why, Json& out) {
  say("takes the change back");
  BudgetRecord back = made;
  back.id = 0;
  back.at_unix_s = parts_.clock.unix_seconds();
  std::swap(back.before, back.after);
  back.act = BudgetAct::undo;
  back.undoes = made.id;
  back.text = "taken back: " + why;
  budget::KvExchange reverse = exchange;
  std::swap(reverse.kv_before, reverse.kv_after);
  TRY_ASSIGN(const Applied applied, apply(role, back, reverse));
  log::warning("budget of model " + made.model + ": " + back.text);
  out.set("applied", false).set("why", back.text);
  // Also one that is off or waits just now: it is to come back as it was.
  if (applied.how == "live") return {};
  const auto restarted = parts_.target.restart(role);
  if (!restarted.ok()) out.set("restart_error", restarted.error().message);
  return {};
}

}  // namespace tandem::service
