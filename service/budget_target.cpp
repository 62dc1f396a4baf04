#include "service/budget_target.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace tandem::service {
namespace {

constexpr auto kResizeLimit = std::chrono::seconds(60);  // touching many GiB of new pages takes a while
constexpr auto kCommandLimit = std::chrono::seconds(10);
constexpr int kPollMs = 100;
constexpr auto kSettled = std::chrono::seconds(3);
constexpr int64_t kHistoryMax = 10'000;

// Between the first sign of a start and ready, or of a stop and its end.
bool is_moving(ModelState state) {
  return state == ModelState::starting || state == ModelState::loading || state == ModelState::draining;
}

}  // namespace

BudgetTarget::Status SupervisorBudgets::status(Role role) {
  Tenant* const found = supervisor_.tenant(role);
  if (found == nullptr) return {};
  const ModelStatus status = found->status();
  return {.state = status.state, .message = status.message, .pid = status.pid};
}

std::string SupervisorBudgets::heavy_work_under_way() {
  for (Tenant* each : supervisor_.tenants()) {
    const ModelState state = each->status().state;
    if (is_moving(state)) return "model " + each->info().name + " is " + model_state_name(state);
  }
  return "";
}

Result<std::string> SupervisorBudgets::resize(Role role, const EngineBudget& budget) {
  Tenant* const found = supervisor_.tenant(role);
  if (found == nullptr) return make_error(Errc::not_found, "no such model");
  protocol::Resize wanted{.kv_bytes = budget.kv_bytes,
                          .slots = budget.slots,
                          .batch_tokens = budget.batch_tokens,
                          .shed_chunk_tokens = std::nullopt};
  // What is shed just now stays so: whoever shed it gives the new number back.
  if (wanted.slots.has_value()) wanted.slots = std::min(*wanted.slots, found->limits().slots_max);
  TRY_ASSIGN(const protocol::Resized has,
             found->client().resize(wanted, std::chrono::steady_clock::now() + kResizeLimit));
  return has.pending ? has.message : "";
}

void SupervisorBudgets::use(Role role, const ModelBudget& budget) {
  supervisor_.use_budget(role, budget);
}

// Waits for the model to leave ready and to settle again. The supervisor owns the order of things.
Result<void> SupervisorBudgets::restart(Role role) {
  TRY_ASSIGN(const std::future<void> done, supervisor_.post(role, ModelCommand::restart));
  if (done.wait_for(kCommandLimit) != std::future_status::ready) {
    return make_error(Errc::unavailable, "the supervisor is busy");
  }
  const auto end = std::chrono::steady_clock::now() + restart_limit_;
  auto moved = std::chrono::steady_clock::now();
  while (true) {
    const Status now = status(role);
    if (now.state == ModelState::ready) return {};
    const auto time = std::chrono::steady_clock::now();
    if (is_moving(now.state)) moved = time;
    // Stopped, failed, or waiting for memory that may never come: not this command's to wait for.
    if (time > end || time - moved > kSettled || supervisor_.draining()) {
      return make_error(Errc::unavailable, std::string("the model is ") + model_state_name(now.state) +
                                               (now.message.empty() ? "" : ": " + now.message));
    }
    (void)::poll(nullptr, 0, kPollMs);
  }
}

// The table's own columns are for people who look into the database; `after` holds the whole record.
Result<int64_t> StoreBook::append_budget(const BudgetRecord& record) {
  const Json json = budget_record_json(record);
  return store_.add_budget_change({.model = record.model,
                                   .before = json.find("before")->dump(),
                                   .after = json.dump(),
                                   .admin_uid = record.uid,
                                   .changed_unix_s = record.at_unix_s,
                                   .forced = record.forced});
}

Result<std::vector<BudgetRecord>> StoreBook::budget_history() {
  TRY_ASSIGN(const std::vector<BudgetChange> rows, store_.budget_history("", kHistoryMax));
  std::vector<BudgetRecord> out;
  for (const BudgetChange& row : rows) {
    auto json = parse_json(row.after);
    auto record = json.ok() ? read_budget_record(*json) : Result<BudgetRecord>(json.error());
    if (!record.ok()) {
      log::warning("budget change " + std::to_string(row.id) + " is left out: " +
                   record.error().message);
      continue;
    }
    record->id = row.id;
    out.push_back(std::move(*record));
  }
  return out;
}

}  // namespace tandem::service
