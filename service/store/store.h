// Store: keys, request records and the responses that clients asked to be stored, in one SQLite file. One writer thread owns the only connection
// (which also does all checkpoints); everybody else talks to it through a bounded queue. A record
// that finds the queue full is dropped and counted. Records are committed in batches within
// milliseconds, responses as they come: kill -9 loses at most those of requests that were ending. Key
// changes are on the disk when the call returns. Responses of a key go with it.
//
// Any thread, after open(). Errors: io, corrupt; unavailable when the queue is full.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/result.h"
#include "service/auth.h"
#include "service/request_record.h"
#include "service/response_store.h"
#include "service/store/database.h"

namespace tandem::service {

struct StoredKey {
  std::string id;
  std::string hash;
  std::string label;
  Scopes scopes;
  int64_t created_unix_s = 0;
  int64_t revoked_unix_s = 0;    // 0: valid
  int64_t last_used_unix_s = 0;  // as of the last committed record
};

class Store final : public ResponseStore {
 public:
  struct Options {
    std::string path;
    int64_t record_rows = 1'000'000;
    size_t queue_max = 4096;
    ResponseLimits responses;
    const Clock* clock = nullptr;  // for the age of responses; null: the system's
  };
  struct Counters {
    std::atomic<int64_t> records_written{0};
    std::atomic<int64_t> records_dropped{0};
    std::atomic<int64_t> responses_written{0};
    std::atomic<int64_t> responses_dropped{0};
    std::atomic<int64_t> response_bytes{0};  // that are stored now
    std::atomic<int64_t> errors{0};
  };

  struct Writer;  // the connection and its statements; writer thread only

  // Opens or creates the file, brings the schema up to date, starts the writer.
  static Result<std::unique_ptr<Store>> open(Options options);
  Store(Options options, std::unique_ptr<Writer> writer);  // use open()
  ~Store() override;  // commits what is queued
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  Result<void> add_key(StoredKey key);
  // not_found: no such key, or revoked already.
  Result<void> revoke_key(std::string id, int64_t now_unix_s);
  Result<std::vector<StoredKey>> keys();
  // Never blocks.
  void record(RequestRecord record);
  // Returns when everything queued before is committed.
  Result<void> flush();
  Result<int64_t> record_count();

  [[nodiscard]] int64_t response_bytes_max() const override;
  bool keep(StoredResponse response) override;
  [[nodiscard]] Result<StoredResponse> find(std::string id, std::string key_id) override;
  Result<void> remove(std::string id, std::string key_id) override;

  [[nodiscard]] const ResponseLimits& response_limits() const { return options_.responses; }
  [[nodiscard]] const Counters& counters() const { return counters_; }
  [[nodiscard]] size_t queued() const { return queue_.size(); }
  [[nodiscard]] size_t queue_max() const { return queue_.capacity(); }

 private:
  struct AddKey {
    StoredKey key;
    std::promise<Result<void>> done;
  };
  struct RevokeKey {
    std::string id;
    int64_t now_unix_s;
    std::promise<Result<void>> done;
  };
  struct ListKeys {
    std::promise<Result<std::vector<StoredKey>>> done;
  };
  struct CountRecords {
    std::promise<Result<int64_t>> done;
  };
  struct FindResponse {
    std::string id, key_id;
    std::promise<Result<StoredResponse>> done;
  };
  struct RemoveResponse {
    std::string id, key_id;
    std::promise<Result<void>> done;
  };
  using Job = std::variant<RequestRecord, StoredResponse, AddKey, RevokeKey, ListKeys, CountRecords,
                           FindResponse, RemoveResponse>;

  template <typename T, typename JobType>
  Result<T> ask(JobType job);
  void run();
  std::optional<Job> next_job();
  void write_records(std::vector<RequestRecord>& batch);
  void write_response(const StoredResponse& response);
  void expire_responses();
  [[nodiscard]] int64_t unix_seconds() const;

  const Options options_;
  const SystemClock system_clock_;
  Counters counters_;
  std::atomic<int64_t> queued_response_bytes_{0};
  std::atomic<bool> closing_{false};
  SteadyTime expire_at_{};  // writer thread
  BoundedQueue<Job> queue_;
  std::unique_ptr<Writer> writer_;
  std::jthread thread_;
};

}  // namespace tandem::service
