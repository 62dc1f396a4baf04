// The budgets of a model that change while it runs: KV bytes, slots, rows of a step, longest prompt.
// Pure: which value holds (the configuration's, or one that was set over it), what a change makes of
// them, what an undo goes back to, and all of it as JSON. The keeper (service/budget_keeper.h) does
// the rest.
//
// Which wins: the newer wish, field by field. A value that was set at run time holds over the file
// until the file itself says something else than it did then: who edits the file afterwards has said
// the last word, and the override ends (a record says so). Another model file in the role ends all.
//
// Errors: invalid_argument names the field and its range; not_found for a change that is not known.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "service/config.h"

namespace tandem::service {

enum class BudgetField : uint8_t { kv, slots, batch_tokens, prompt_tokens_max };
inline constexpr size_t kBudgetFieldCount = 4;
inline constexpr std::array<BudgetField, kBudgetFieldCount> kBudgetFields = {
    BudgetField::kv, BudgetField::slots, BudgetField::batch_tokens, BudgetField::prompt_tokens_max};
const char* budget_field_name(BudgetField field) noexcept;  // as the configuration key

// One number per field: bytes, sequences, rows, tokens. kv 0: what all slots need at full context;
// prompt_tokens_max 0: what the context allows.
struct ModelBudget {
  std::array<int64_t, kBudgetFieldCount> values{};

  int64_t& operator[](BudgetField field) { return values[static_cast<size_t>(field)]; }
  int64_t operator[](BudgetField field) const { return values[static_cast<size_t>(field)]; }
  bool operator==(const ModelBudget&) const = default;
};

ModelBudget budget_of(const ModelConfig& config);
void put_budget(const ModelBudget& budget, ModelConfig& config);

// What holds for a role, and which of it was set over the file.
struct BudgetState {
  ModelBudget values;
  std::array<bool, kBudgetFieldCount> overridden{};

  [[nodiscard]] bool is_overridden(BudgetField field) const {
    return overridden[static_cast<size_t>(field)];
  }
  [[nodiscard]] bool any_overridden() const;
  bool operator==(const BudgetState&) const = default;
};

enum class BudgetAct : uint8_t { set, undo, file };
const char* budget_act_name(BudgetAct act) noexcept;

// One change, as it is kept. The newest of a role says what holds for it.
struct BudgetRecord {
  int64_t id = 0;  // given by the store, ascending
  int64_t at_unix_s = 0;
  std::string role;   // "default", "optional"
  std::string model;  // that it was made for: name and file
  std::string file;
  std::string who;
  int64_t uid = -1;  // -1: nobody, the file
  BudgetAct act = BudgetAct::set;
  int64_t undoes = 0;  // id of the change that an undo took back
  bool forced = false;
  BudgetState before;
  BudgetState after;
  ModelBudget configured;  // what the file said then
  std::string how;         // how it took effect
  std::string text;        // the exchange that it was judged by
};
Json budget_record_json(const BudgetRecord& record);
Result<BudgetRecord> read_budget_record(const Json& json);

// What holds for a role at start: the configuration and the newest record of the role, if any.
struct ResolvedBudget {
  BudgetState state;
  // Set when the file ended overrides: to be kept as a record (id, time and who are left open).
  std::optional<BudgetRecord> ended;
};
ResolvedBudget resolve_budget(const std::string& role, const ModelConfig& config,
                              const std::optional<BudgetRecord>& newest);

// What somebody asks for: a number, or "as the file says". Fields that are not named stay.
struct BudgetWish {
  struct Value {
    bool as_configured = false;
    int64_t number = 0;
  };
  std::array<std::optional<Value>, kBudgetFieldCount> fields;

  [[nodiscard]] bool empty() const;
};
// Members kv, slots, batch_tokens, prompt_tokens_max: an integer in the range of the configuration key,
// or null for the file's value. Others are ignored.
Result<BudgetWish> read_budget_wish(const Json& json);
BudgetState wished_state(const BudgetState& now, const BudgetWish& wish, const ModelBudget& configured);

// The change that an undo takes back: `id` (of any kind), or (0) the newest that was set and not undone
// since, so that undo after undo goes further back. `newest_first` is the history of both roles.
Result<BudgetRecord> find_undoable(const std::vector<BudgetRecord>& newest_first, int64_t id);
// What held before the change, and with it before all later ones of its role; what came from the file
// then comes from the file as it is now.
BudgetState undone_state(const BudgetRecord& record, const ModelBudget& configured);

// {"kv": {"value", "from": "file" | "override", "configured"}, ...}
Json budget_state_json(const BudgetState& state, const ModelBudget& configured);
// "kv 8 GiB -> 24 GiB, slots 4 -> 16"; empty when nothing changes.
std::string budget_change_text(const ModelBudget& before, const ModelBudget& after);
// "24 GiB", "as needed" (kv 0), "16", "no limit" (prompt_tokens_max 0).
std::string budget_value_text(BudgetField field, int64_t value);

}  // namespace tandem::service
