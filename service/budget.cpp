#include "service/budget.h"

#include <algorithm>

#include "memory_budget/plan_box.h"
#include "service/config_keys.h"

namespace tandem::service {
namespace {

struct FieldPlace {
  const char* name;
  int64_t ModelConfig::* configured;
};
constexpr std::array<FieldPlace, kBudgetFieldCount> kPlaces = {
    {{"kv", &ModelConfig::kv_bytes},
     {"slots", &ModelConfig::slots},
     {"batch_tokens", &ModelConfig::batch_tokens},
     {"prompt_tokens_max", &ModelConfig::prompt_tokens_max}}};

const FieldPlace& place(BudgetField field) { return kPlaces[static_cast<size_t>(field)]; }

// Names, bounds and meaning stand once, with the configuration key.
Result<void> check_range(BudgetField field, int64_t value) {
  for (const ConfigKey<ModelConfig>& key : model_keys()) {
    if (key.name != place(field).name) continue;
    if (value >= key.least && value <= key.most) return {};
    return make_error(Errc::invalid_argument,
                      std::string(key.name) + " is " + std::to_string(value) + ", allowed are " +
                          std::to_string(key.least) + " to " + std::to_string(key.most),
                      std::string(key.name));
  }
  return make_error(Errc::internal, std::string("no key ") + place(field).name);
}

Json state_to_json(const BudgetState& state) {
  Json out = Json::object();
  for (const BudgetField field : kBudgetFields) {
    out.set(budget_field_name(field), Json::object({{"value", state.values[field]},
                                                    {"override", state.is_overridden(field)}}));
  }
  return out;
}

Error broken(const std::string& what) {
  return make_error(Errc::corrupt, "a record of a budget has no " + what, what);
}

Result<int64_t> integer_of(const Json& json, const std::string& name) {
  const Json* value = json.find(name);
  if (value == nullptr || !value->is_integer()) return broken(name);
  return value->as_integer();
}
Result<bool> flag_of(const Json& json, const std::string& name) {
  const Json* value = json.find(name);
  if (value == nullptr || !value->is_bool()) return broken(name);
  return value->as_bool();
}
Result<std::string> text_of(const Json& json, const std::string& name) {
  const Json* value = json.find(name);
  if (value == nullptr || !value->is_string()) return broken(name);
  return value->as_string();
}

Result<BudgetState> state_of(const Json& json, const std::string& name) {
  const Json* state = json.find(name);
  if (state == nullptr || !state->is_object()) return broken(name);
  BudgetState out;
  for (const BudgetField field : kBudgetFields) {
    const Json* value = state->find(budget_field_name(field));
    if (value == nullptr || !value->is_object()) return broken(name);
    TRY_ASSIGN(out.values[field], integer_of(*value, "value"));
    TRY(check_range(field, out.values[field]));
    TRY_ASSIGN(out.overridden[static_cast<size_t>(field)], flag_of(*value, "override"));
  }
  return out;
}

Result<ModelBudget> budget_member(const Json& json, const std::string& name) {
  const Json* budget = json.find(name);
  if (budget == nullptr || !budget->is_object()) return broken(name);
  ModelBudget out;
  for (const BudgetField field : kBudgetFields) {
    TRY_ASSIGN(out[field], integer_of(*budget, budget_field_name(field)));
  }
  return out;
}

Json budget_to_json(const ModelBudget& budget) {
  Json out = Json::object();
  for (const BudgetField field : kBudgetFields) out.set(budget_field_name(field), budget[field]);
  return out;
}

}  // namespace

const char* budget_field_name(BudgetField field) noexcept { return place(field).name; }

const char* budget_act_name(BudgetAct act) noexcept {
  switch (act) {
    case BudgetAct::set: return "set";
    case BudgetAct::undo: return "undo";
    case BudgetAct::file: return "file";
  }
  return "unknown";
}

ModelBudget budget_of(const ModelConfig& config) {
  ModelBudget out;
  for (const BudgetField field : kBudgetFields) out[field] = config.*place(field).configured;
  return out;
}

void put_budget(const ModelBudget& budget, ModelConfig& config) {
  for (const BudgetField field : kBudgetFields) config.*place(field).configured = budget[field];
}

bool BudgetState::any_overridden() const {
  return std::find(overridden.begin(), overridden.end(), true) != overridden.end();
}

Json budget_record_json(const BudgetRecord& record) {
  Json out = Json::object();
  out.set("id", record.id)
      .set("at", record.at_unix_s)
      .set("role", record.role)
      .set("model", record.model)
      .set("file", record.file)
      .set("who", record.who)
      .set("uid", record.uid)
      .set("act", budget_act_name(record.act))
      .set("undoes", record.undoes == 0 ? Json() : Json(record.undoes))
      .set("forced", record.forced)
      .set("before", state_to_json(record.before))
      .set("after", state_to_json(record.after))
      .set("configured", budget_to_json(record.configured))
      .set("change", budget_change_text(record.before.values, record.after.values))
      .set("how", record.how)
      .set("text", record.text);
  return out;
}

Result<BudgetRecord> read_budget_record(const Json& json) {
  if (!json.is_object()) return broken("object");
  BudgetRecord out;
  TRY_ASSIGN(out.id, integer_of(json, "id"));
  TRY_ASSIGN(out.at_unix_s, integer_of(json, "at"));
  TRY_ASSIGN(out.uid, integer_of(json, "uid"));
  for (const auto& [name, text] : {std::pair{"role", &out.role}, std::pair{"model", &out.model},
                                   std::pair{"file", &out.file}, std::pair{"who", &out.who},
                                   std::pair{"how", &out.how}, std::pair{"text", &out.text}}) {
    TRY_ASSIGN(*text, text_of(json, name));
  }
  TRY_ASSIGN(const std::string act, text_of(json, "act"));
  bool known = false;
  for (const BudgetAct each : {BudgetAct::set, BudgetAct::undo, BudgetAct::file}) {
    if (act != budget_act_name(each)) continue;
    out.act = each;
    known = true;
  }
  if (!known) return broken("act");
  const Json* undoes = json.find("undoes");
  if (undoes != nullptr && undoes->is_integer()) out.undoes = undoes->as_integer();
  TRY_ASSIGN(out.forced, flag_of(json, "forced"));
  TRY_ASSIGN(out.before, state_of(json, "before"));
  TRY_ASSIGN(out.after, state_of(json, "after"));
  TRY_ASSIGN(out.configured, budget_member(json, "configured"));
  return out;
}

ResolvedBudget resolve_budget(const std::string& role, const ModelConfig& config,
                              const std::optional<BudgetRecord>& newest) {
  const ModelBudget configured = budget_of(config);
  ResolvedBudget out{.state = {.values = configured, .overridden = {}}, .ended = std::nullopt};
  if (!newest.has_value() || !newest->after.any_overridden()) return out;
  const bool same_model = newest->model == config.name && newest->file == config.file;
  bool ended = false;
  for (const BudgetField field : kBudgetFields) {
    if (!newest->after.is_overridden(field)) continue;
    if (!same_model || configured[field] != newest->configured[field]) {
      ended = true;
      continue;
    }
    out.state.values[field] = newest->after.values[field];
    out.state.overridden[static_cast<size_t>(field)] = true;
  }
  if (!ended) return out;
  out.ended = BudgetRecord{
      .role = role,
      .model = config.name,
      .file = config.file,
      .act = BudgetAct::file,
      .before = newest->after,
      .after = out.state,
      .configured = configured,
      .how = "start",
      .text = same_model ? "the configuration file was edited after change " + std::to_string(newest->id)
                         : "the configuration file names another model than change " +
                               std::to_string(newest->id)};
  return out;
}

bool BudgetWish::empty() const {
  return std::none_of(fields.begin(), fields.end(), [](const auto& f) { return f.has_value(); });
}

Result<BudgetWish> read_budget_wish(const Json& json) {
  BudgetWish out;
  for (const BudgetField field : kBudgetFields) {
    const Json* value = json.find(budget_field_name(field));
    if (value == nullptr) continue;
    if (!value->is_null() && !value->is_integer()) {
      return make_error(Errc::invalid_argument,
                        std::string(budget_field_name(field)) + " must be an integer, or null",
                        budget_field_name(field));
    }
    BudgetWish::Value wished{.as_configured = value->is_null()};
    if (!wished.as_configured) {
      wished.number = value->as_integer();
      TRY(check_range(field, wished.number));
    }
    out.fields[static_cast<size_t>(field)] = wished;
  }
  return out;
}

BudgetState wished_state(const BudgetState& now, const BudgetWish& wish,
                         const ModelBudget& configured) {
  BudgetState out = now;
  for (const BudgetField field : kBudgetFields) {
    const auto& wished = wish.fields[static_cast<size_t>(field)];
    if (!wished.has_value()) continue;
    out.values[field] = wished->as_configured ? configured[field] : wished->number;
    out.overridden[static_cast<size_t>(field)] = !wished->as_configured;
  }
  return out;
}

Result<BudgetRecord> find_undoable(const std::vector<BudgetRecord>& newest_first, int64_t id) {
  // An undo takes back its change and what came after that in the role, unless it was undone itself.
  std::vector<const BudgetRecord*> undos;
  for (const BudgetRecord& record : newest_first) {
    const auto taken_back = [&record](const BudgetRecord* undo) {
      return undo->role == record.role && undo->undoes <= record.id && record.id < undo->id;
    };
    const bool undone = std::any_of(undos.begin(), undos.end(), taken_back);
    if (id != 0 ? record.id == id : record.act == BudgetAct::set && !undone) return record;
    if (record.act == BudgetAct::undo && !undone) undos.push_back(&record);
  }
  return make_error(Errc::not_found, id != 0 ? "there is no change " + std::to_string(id)
                                             : "there is no change to undo");
}

BudgetState undone_state(const BudgetRecord& record, const ModelBudget& configured) {
  BudgetState out = record.before;
  for (const BudgetField field : kBudgetFields) {
    if (!out.is_overridden(field)) out.values[field] = configured[field];
  }
  return out;
}

Json budget_state_json(const BudgetState& state, const ModelBudget& configured) {
  Json out = Json::object();
  for (const BudgetField field : kBudgetFields) {
    out.set(budget_field_name(field),
            Json::object({{"value", state.values[field]},
                          {"from", state.is_overridden(field) ? "override" : "file"},
                          {"configured", configured[field]}}));
  }
  return out;
}

std::string budget_value_text(BudgetField field, int64_t value) {
  if (field == BudgetField::kv) return value == 0 ? "as needed" : budget::size_text(value);
  if (field == BudgetField::prompt_tokens_max && value == 0) return "no limit";
  return std::to_string(value);
}

std::string budget_change_text(const ModelBudget& before, const ModelBudget& after) {
  std::string out;
  for (const BudgetField field : kBudgetFields) {
    if (before[field] == after[field]) continue;
    out += (out.empty() ? "" : ", ") + std::string(budget_field_name(field)) + " " +
           budget_value_text(field, before[field]) + " -> " + budget_value_text(field, after[field]);
  }
  return out;
}

}  // namespace tandem::service
