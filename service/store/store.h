// Store: keys, request records, incidents, the history of budgets, learned numbers, and the responses
// that clients asked to be stored, in one SQLite file. One writer thread owns the only connection
// (which also does all checkpoints); everybody else talks to it through a bounded queue. A record
// that finds the queue full is dropped and counted. Records are committed in batches within
// milliseconds, responses as they come: kill -9 loses at most those of requests that were ending.
// Changes of keys, incidents and budgets are on the disk when the call returns. Responses of a key go
// with it.
//
// While the file cannot be written (disk full, read-only, broken) everything that only reads goes on;
// what must be written fails with the reason, but records wait in memory, as many as queue_max, and
// responses that were promised already; they are written once it works again, which is tried every
// second. health() says how it stands. That holds from the beginning too: where the file cannot be opened
// for writing, what it says is read from a copy, which nobody writes to, until it can be.
//
// Any thread, after open(). Errors: io, corrupt; unavailable when the queue is full.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "service/incident_store.h"
#include "service/request_record.h"
#include "service/response_store.h"
#include "service/store/rows.h"

namespace tandem::service {

struct StoreHealth {
  bool writable = true;
  int64_t failing_since_unix_s = 0;  // 0 while writable
  std::string reason;                // the last error, kept after the store recovered
};

class Store final : public ResponseStore, public IncidentStore {
 public:
  struct Options {
    std::string path;
    std::string copy_path;  // empty: a file that cannot be opened for writing is an error of open()
    int64_t record_rows = 1'000'000;
    int64_t incident_rows = 10'000;
    size_t queue_max = 4096;
    ResponseLimits responses;
    const Clock* clock = nullptr;  // for the age of responses; null: the system's
  };
  struct Counters {
    std::atomic<int64_t> records_written{0};
    std::atomic<int64_t> records_dropped{0};
    std::atomic<int64_t> records_waiting{0};  // for a file that can be written
    std::atomic<int64_t> responses_written{0};
    std::atomic<int64_t> responses_dropped{0};
    std::atomic<int64_t> response_bytes{0};  // that are stored now
    std::atomic<int64_t> errors{0};
  };

  struct Writer;  // the connection and its statements; writer thread only

  // Opens or creates the file, brings the schema up to date, starts the writer. With copy_path an error of
  // kind io is only one of health().
  static Result<std::unique_ptr<Store>> open(Options options);
  Store(Options options, std::unique_ptr<Writer> writer, Result<void> opened);  // use open()
  ~Store() override;  // commits what is queued
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // invalid_argument: there is a key with this id.
  Result<void> add_key(const StoredKey& key);
  // not_found: no such key, or revoked already.
  Result<void> revoke_key(const std::string& id, int64_t now_unix_s);
  Result<std::vector<StoredKey>> keys();
  // Never blocks.
  void record(RequestRecord record);
  // Returns when everything queued before is committed.
  Result<void> flush();
  Result<int64_t> record_count();

  [[nodiscard]] int64_t response_bytes_max() const override;
  [[nodiscard]] bool can_keep() const override { return health().writable; }
  bool keep(StoredResponse response) override;
  [[nodiscard]] Result<StoredResponse> find(std::string id, std::string key_id) override;
  Result<void> remove(std::string id, std::string key_id) override;

  Result<void> put_incidents(const std::vector<IncidentRow>& rows) override;
  Result<std::vector<IncidentRow>> incidents(const IncidentFilter& filter) override;
  Result<int64_t> last_incident_id() override;

  // The id. `undoes`: the change that this one takes back, 0 for none. Errors: not_found (the model
  // has no such change), invalid_argument (taken back already).
  Result<int64_t> add_budget_change(const BudgetChange& change, int64_t undoes = 0);
  // Newest first; an empty name: of all models.
  Result<std::vector<BudgetChange>> budget_history(const std::string& model, int64_t limit);

  // Replaces what is known for the key. Never blocks; false: the queue is full. An error of the file
  // is logged, and the numbers are learned again from the next run.
  bool put_learned(LearnedRow row);
  Result<std::optional<LearnedNumbers>> learned(const LearnedKey& key);
  // Of these weights under any other version, flags, kernel and driver; the latest first.
  Result<std::vector<LearnedRow>> learned_of_weights(const std::string& weights);

  // On the disk when it returns.
  Result<void> add_canary(const CanaryRow& row);
  Result<std::vector<CanaryRow>> canary_history(const std::string& weights, const std::string& version,
                                                int64_t limit);

  [[nodiscard]] const ResponseLimits& response_limits() const { return options_.responses; }
  [[nodiscard]] const Counters& counters() const { return counters_; }
  [[nodiscard]] StoreHealth health() const TANDEM_EXCLUDES(health_mutex_);
  [[nodiscard]] size_t queued() const { return queue_.size(); }
  [[nodiscard]] size_t queue_max() const { return queue_.capacity(); }

 private:
  // A question or an order of somebody who waits for the answer.
  class Task {
   public:
    virtual ~Task() = default;
    virtual void run(Store& store) = 0;
  };
  template <typename T>
  class Asked;
  using Job = std::variant<RequestRecord, StoredResponse, LearnedRow, std::unique_ptr<Task>>;

  enum class Access : uint8_t { reads, writes };
  // Runs `what` on the writer's thread and waits for it.
  template <typename T>
  Result<T> ask(Access access, std::function<Result<T>(Writer&)> what);
  void run();
  std::optional<Job> next_job();
  void do_job(Job& job);
  void write_records();
  void write_response(StoredResponse response);
  void write_waiting_responses();
  Result<StoredResponse> find_response(const std::string& id, const std::string& key_id);
  Result<void> remove_response(const std::string& id, const std::string& key_id);
  void expire_responses();
  void retry();
  // Whether the file itself is open, also after a try.
  bool have_file() TANDEM_EXCLUDES(health_mutex_);
  // Takes the outcome of a write into the health.
  void note_write(const Result<void>& written) TANDEM_EXCLUDES(health_mutex_);
  [[nodiscard]] int64_t unix_seconds() const;

  const Options options_;
  const SystemClock system_clock_;
  Counters counters_;
  std::atomic<int64_t> queued_response_bytes_{0};
  std::atomic<bool> closing_{false};
  mutable Mutex health_mutex_;
  StoreHealth health_ TANDEM_GUARDED_BY(health_mutex_);
  // Of the writer thread:
  bool copied_;  // the writer has the copy
  SteadyTime expire_at_{};
  SteadyTime retry_at_ = SteadyTime::max();  // max: the file can be written
  std::vector<RequestRecord> records_;       // to be written; they wait here while it cannot
  std::vector<StoredResponse> responses_;    // were promised, and could not be written yet

  BoundedQueue<Job> queue_;
  std::unique_ptr<Writer> writer_;
  std::jthread thread_;
};

}  // namespace tandem::service
