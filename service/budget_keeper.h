// BudgetKeeper: changes the budgets of running models. Each change is planned first with what the box
// holds now, refused when it does not fit (unless it is forced), made live where the engine can, else by
// an ordered restart, and kept in the store, so that it survives tandemd and the engine.
//
// A change takes as long as a load may: it is a job of the keeper's own thread, one at a time. order()
// and the questions are for any thread and do not wait. While a model loads nothing is changed (U9);
// while the host is short of memory nothing grows, forced or not (U14).
//
// Errors of an order: exhausted (a change is under way). Errors of a job: invalid_argument and
// not_found (the wish), unavailable (a load is under way, or the engine was lost), io (the store: then
// nothing was changed), exhausted (the engine cannot have the memory: nothing was changed).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mutex.h"
#include "base/result.h"
#include "service/budget.h"
#include "service/budget_plan.h"
#include "service/config.h"
#include "service/generation.h"

namespace tandem::service {

// Where changes are kept. Any thread; may block for a disk.
class BudgetBook {
 public:
  virtual ~BudgetBook() = default;
  // On the disk when it returns; the id that the record got.
  virtual Result<int64_t> append_budget(const BudgetRecord& record) = 0;
  // Newest first.
  virtual Result<std::vector<BudgetRecord>> budget_history() = 0;
};

// What a running engine is told: what is absent stays as it is.
struct EngineBudget {
  std::optional<int64_t> kv_bytes;  // as planned, also where the budget leaves it to the slots
  std::optional<int64_t> slots;
  std::optional<int64_t> batch_tokens;
};

// What a change does to the models; over the supervisor. Called on the keeper's thread only, but for
// status().
class BudgetTarget {
 public:
  struct Status {
    ModelState state = ModelState::stopped;
    std::string message;
    int64_t pid = 0;
  };
  virtual ~BudgetTarget() = default;
  virtual Status status(Role role) = 0;
  // Why no memory may be moved now; empty when it may.
  virtual std::string heavy_work_under_way() = 0;
  // The running engine, between two steps, without ending a request. Why a part of it has to wait for
  // running requests to end; empty when all of it holds. invalid_argument: it cannot do that live. Any
  // other error: nothing was changed.
  virtual Result<std::string> resize(Role role, const EngineBudget& budget) = 0;
  // Admission from now on, the engine from its next start on.
  virtual void use(Role role, const ModelBudget& budget) = 0;
  // Everything ends now: what does not come back is nobody's fault.
  [[nodiscard]] virtual bool closing() const { return false; }
  // In order; returns when the model is ready again. Error: unavailable, why it is not.
  virtual Result<void> restart(Role role) = 0;
};

struct BudgetOrder {
  Role role = Role::optional_model;
  BudgetWish wish;
  std::optional<int64_t> undo;  // instead of a wish: the id, 0 for the newest; its role is the role
  bool force = false;
  bool dry_run = false;
  std::string who;
  int64_t uid = -1;
};

class BudgetKeeper {
 public:
  struct Parts {
    const Config& configured;  // the file's values
    BudgetBook& book;
    BudgetTarget& target;
    const Clock& clock;
    Describer describe;
    std::function<Result<budget::HostFacts>()> host;
    std::function<int64_t(int64_t pid)> held;
    // Why a change that was made must not stay (service/canary.h); empty: nothing. None: nobody is asked.
    std::function<std::string()> check_change = nullptr;
    // Why no budget may grow now (the guard's level); empty when it may.
    std::function<std::string()> frozen;
  };

  // What holds at start: the configuration with what was set over it. Overrides that the file ended are
  // recorded. Before the keeper exists, since the models are built from the result.
  struct Start {
    Config config;
    std::array<BudgetState, 2> states;  // by role
  };
  static Result<Start> resolve(const Config& configured, BudgetBook& book, const Clock& clock);

  BudgetKeeper(Parts parts, const Start& start);
  ~BudgetKeeper();
  BudgetKeeper(const BudgetKeeper&) = delete;
  BudgetKeeper& operator=(const BudgetKeeper&) = delete;

  void start();
  void stop();

  // The number of the job.
  Result<int64_t> order(BudgetOrder order);
  // {"job", "state": "working" | "done" | "failed", "doing", "result" or "error"}. not_found: forgotten.
  Result<Json> job(int64_t number) const;

  [[nodiscard]] BudgetState state(Role role) const;
  [[nodiscard]] std::optional<ModelBudget> configured(Role role) const;  // none: no such model
  [[nodiscard]] Json show() const;
  Result<Json> history(int64_t limit) const;
  // For `tandemctl plan`.
  Result<BoxFacts> facts() const;

  // One order, on the calling thread; for tests and for the thread.
  Result<Json> carry_out(const BudgetOrder& order);

 private:
  struct Job {
    int64_t number = 0;
    std::string doing;
    bool done = false;
    std::optional<Result<Json>> result;
  };
  struct Work {
    int64_t number = 0;
    BudgetOrder order;
  };
  struct Planned {
    budget::KvExchange exchange;
    Json plan;
    std::string text;
  };
  struct Applied {
    std::string how;      // "live", "restart", "next_load"
    std::string pending;  // why a part waits; empty
  };

  void run(const std::stop_token& stop);
  void say(std::string doing);
  [[nodiscard]] const ModelConfig* config_of(Role role) const;
  [[nodiscard]] BoxFacts facts_with(Role role, const ModelBudget& budget, BoxFacts facts) const;
  Result<BudgetRecord> wanted(const BudgetOrder& order) const;
  Result<Planned> plan_change(Role role, const BudgetRecord& record) const;
  // Undoes it and starts the model as before; what `out` says of it.
  Result<void> take_back(Role role, const BudgetRecord& made, const budget::KvExchange& exchange,
                         const std::string& why, Json& out);
  // Takes a change back that the default model pays for.
  Result<void> check_neighbour(Role role, const BudgetRecord& made, const budget::KvExchange& exchange,
                               Json& out);
  Result<Applied> apply(Role role, BudgetRecord& record, const budget::KvExchange& exchange);

  const Parts parts_;
  mutable Mutex mutex_;
  std::array<BudgetState, 2> states_ TANDEM_GUARDED_BY(mutex_);
  std::deque<Job> jobs_ TANDEM_GUARDED_BY(mutex_);  // the last few
  int64_t next_job_ TANDEM_GUARDED_BY(mutex_) = 1;
  int64_t working_ TANDEM_GUARDED_BY(mutex_) = 0;
  BoundedQueue<Work> queue_{16};
  std::jthread thread_;
};

}  // namespace tandem::service
