#include "service/store/store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/overloaded.h"
#include "service/store/migrations.h"
#include "service/store/response_table.h"

namespace tandem::service {
namespace {

constexpr size_t kBatchMax = 256;
constexpr int64_t kPruneEvery = 1024;  // records between two looks at the row limit
constexpr auto kExpireEvery = std::chrono::seconds(60);
constexpr int64_t kQueuedResponseBytesMax = int64_t{64} << 20;

}  // namespace

struct Store::Writer {
  Database database;
  Statement insert_record;
  Statement touch_key;
  Statement prune;
  Statement insert_key;
  Statement revoke;
  Statement list;
  Statement count;
  ResponseTable responses;
  int64_t since_prune = 0;

  static Result<std::unique_ptr<Writer>> open(const Options& options);
  Result<void> write(const RequestRecord& record);
  Result<void> write_batch(const std::vector<RequestRecord>& records, int64_t rows_max);
  Result<void> add(const StoredKey& key);
  Result<void> revoke_key(const std::string& id, int64_t now);
  Result<std::vector<StoredKey>> read_keys();
  Result<int64_t> read_count();
};

Result<std::unique_ptr<Store::Writer>> Store::Writer::open(const Options& options) {
  TRY_ASSIGN(Database database, Database::open(options.path));
  TRY(migrate(database));
  TRY_ASSIGN(ResponseTable responses, ResponseTable::open(database, options.responses));
  TRY_ASSIGN(Statement insert_record,
             database.prepare("INSERT INTO requests (id, route, model, key_id, created_unix_s, "
                              "queue_us, prefill_us, decode_us, first_token_us, total_us, "
                              "prompt_tokens, cached_tokens, completion_tokens, status, stream, "
                              "outcome, reason) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
  TRY_ASSIGN(Statement touch_key,
             database.prepare("UPDATE keys SET last_used_unix_s = max(last_used_unix_s, ?) "
                              "WHERE id = ?"));
  TRY_ASSIGN(Statement prune,
             database.prepare("DELETE FROM requests WHERE number <= "
                              "(SELECT max(number) FROM requests) - ?"));
  TRY_ASSIGN(Statement insert_key,
             database.prepare("INSERT INTO keys (id, hash, label, inference, admin, "
                              "created_unix_s) VALUES (?,?,?,?,?,?)"));
  TRY_ASSIGN(Statement revoke,
             database.prepare("UPDATE keys SET revoked_unix_s = ? "
                              "WHERE id = ? AND revoked_unix_s = 0"));
  TRY_ASSIGN(Statement list,
             database.prepare("SELECT id, hash, label, inference, admin, created_unix_s, "
                              "revoked_unix_s, last_used_unix_s FROM keys "
                              "ORDER BY created_unix_s, id"));
  TRY_ASSIGN(Statement count, database.prepare("SELECT count(*) FROM requests"));
  return std::unique_ptr<Writer>(std::make_unique<Writer>(
      Writer{std::move(database), std::move(insert_record), std::move(touch_key), std::move(prune),
             std::move(insert_key), std::move(revoke), std::move(list), std::move(count), std::move(responses)}));
}

Result<void> Store::Writer::write(const RequestRecord& r) {
  int i = 0;
  for (const std::string* text : {&r.id, &r.route, &r.model, &r.key_id}) {
    insert_record.bind(++i, *text);
  }
  for (const int64_t number :
       {r.created_unix_s, r.queue_us, r.prefill_us, r.decode_us, r.first_token_us, r.total_us,
        r.prompt_tokens, r.cached_tokens, r.completion_tokens, r.status, int64_t{r.stream}}) {
    insert_record.bind(++i, number);
  }
  insert_record.bind(++i, std::string_view(outcome_name(r.outcome)));
  insert_record.bind(++i, r.reason);
  TRY(insert_record.run());
  if (r.key_id.empty()) return {};
  return touch_key.bind(1, r.created_unix_s).bind(2, r.key_id).run();
}

Result<void> Store::Writer::write_batch(const std::vector<RequestRecord>& records,
                                        int64_t rows_max) {
  // WAL with NORMAL: a commit survives the end of this process, not a loss of power; no fsync here.
  TRY(database.execute("PRAGMA synchronous=NORMAL"));
  TRY(database.execute("BEGIN IMMEDIATE"));
  Result<void> result;
  for (const RequestRecord& record : records) {
    if (result.ok()) result = write(record);
  }
  since_prune += static_cast<int64_t>(records.size());
  if (result.ok() && since_prune >= kPruneEvery) {
    since_prune = 0;
    result = prune.bind(1, rows_max).run();
  }
  if (result.ok()) result = database.execute("COMMIT");
  if (!result.ok()) (void)database.execute("ROLLBACK");
  return result;
}

Result<void> Store::Writer::add(const StoredKey& key) {
  TRY(database.execute("PRAGMA synchronous=FULL"));
  return insert_key.bind(1, key.id)
      .bind(2, key.hash)
      .bind(3, key.label)
      .bind(4, int64_t{key.scopes.inference})
      .bind(5, int64_t{key.scopes.admin})
      .bind(6, key.created_unix_s)
      .run();
}

Result<void> Store::Writer::revoke_key(const std::string& id, int64_t now) {
  TRY(database.execute("PRAGMA synchronous=FULL"));
  TRY(revoke.bind(1, now).bind(2, id).run());
  if (database.changes() != 1) return make_error(Errc::not_found, "no valid key has this id");
  // Nobody can ask for them any more.
  return responses.remove_key(database, id);
}

Result<std::vector<StoredKey>> Store::Writer::read_keys() {
  std::vector<StoredKey> out;
  while (true) {
    TRY_ASSIGN(const bool row, list.step());
    if (!row) return out;
    out.push_back({.id = list.text(0),
                   .hash = list.text(1),
                   .label = list.text(2),
                   .scopes = {.inference = list.integer(3) != 0, .admin = list.integer(4) != 0},
                   .created_unix_s = list.integer(5),
                   .revoked_unix_s = list.integer(6),
                   .last_used_unix_s = list.integer(7)});
  }
}

Result<int64_t> Store::Writer::read_count() {
  TRY(count.step());
  const int64_t rows = count.integer(0);
  TRY(count.run());
  return rows;
}

Result<std::unique_ptr<Store>> Store::open(Options options) {
  TRY_ASSIGN(std::unique_ptr<Writer> writer, Writer::open(options));
  return std::make_unique<Store>(std::move(options), std::move(writer));
}

Store::Store(Options options, std::unique_ptr<Writer> writer)
    : options_(std::move(options)),
      queue_(options_.queue_max),
      writer_(std::move(writer)),
      thread_([this] { run(); }) {}

// The thread ends when the queue is empty; jthread joins.
Store::~Store() {
  closing_.store(true);
  queue_.close();
}

int64_t Store::unix_seconds() const {
  return (options_.clock == nullptr ? system_clock_ : *options_.clock).unix_seconds();
}

// Empty: the end. Old responses go even while there is nothing else to do.
std::optional<Store::Job> Store::next_job() {
  while (true) {
    if (std::chrono::steady_clock::now() >= expire_at_) expire_responses();
    if (closing_.load()) return queue_.pop();
    if (auto job = queue_.pop_until(expire_at_)) return job;
  }
}

void Store::expire_responses() {
  expire_at_ = std::chrono::steady_clock::now() + kExpireEvery;
  const auto done = writer_->responses.expire(unix_seconds());
  if (!done.ok() && counters_.errors.fetch_add(1) == 0) {
    log::error("old responses cannot be deleted: " + done.error().message);
  }
  counters_.response_bytes.store(writer_->responses.bytes());
}

void Store::write_records(std::vector<RequestRecord>& batch) {
  const auto count = static_cast<int64_t>(batch.size());
  const auto written = writer_->write_batch(batch, options_.record_rows);
  (written.ok() ? counters_.records_written : counters_.records_dropped).fetch_add(count);
  if (!written.ok() && counters_.errors.fetch_add(1) == 0) {
    log::error("request records cannot be stored: " + written.error().message);
  }
  batch.clear();
}

void Store::write_response(const StoredResponse& response) {
  queued_response_bytes_.fetch_sub(response.bytes());
  const auto written = writer_->responses.add(writer_->database, response);
  (written.ok() ? counters_.responses_written : counters_.responses_dropped).fetch_add(1);
  if (!written.ok() && counters_.errors.fetch_add(1) == 0) {
    log::error("responses cannot be stored: " + written.error().message);
  }
}

void Store::run() {
  std::vector<RequestRecord> batch;
  std::optional<Job> job = next_job();
  while (job.has_value()) {
    // Records that stand in a row go into one transaction.
    while (job.has_value() && std::holds_alternative<RequestRecord>(*job)) {
      batch.push_back(std::move(std::get<RequestRecord>(*job)));
      job = batch.size() < kBatchMax ? queue_.try_pop() : std::nullopt;
    }
    if (!batch.empty()) write_records(batch);
    if (job.has_value()) {
      std::visit(
          Overloaded{[](RequestRecord&) {},
                     [&](StoredResponse& response) { write_response(response); },
                     [&](AddKey& j) { j.done.set_value(writer_->add(j.key)); },
                     [&](RevokeKey& j) {
                       j.done.set_value(writer_->revoke_key(j.id, j.now_unix_s));
                     },
                     [&](ListKeys& j) { j.done.set_value(writer_->read_keys()); },
                     [&](CountRecords& j) { j.done.set_value(writer_->read_count()); },
                     [&](FindResponse& j) {
                       j.done.set_value(writer_->responses.find(j.id, j.key_id, unix_seconds()));
                     },
                     [&](RemoveResponse& j) {
                       j.done.set_value(
                           writer_->responses.remove(writer_->database, j.id, j.key_id));
                     }},
          *job);
      counters_.response_bytes.store(writer_->responses.bytes());
    }
    job = next_job();
  }
}

template <typename T, typename JobType>
Result<T> Store::ask(JobType job) {
  auto answer = job.done.get_future();
  if (!queue_.try_push(Job(std::move(job)))) {
    return make_error(Errc::unavailable, "the store is behind: " +
                                             std::to_string(queue_.capacity()) + " jobs wait");
  }
  return answer.get();
}

Result<void> Store::add_key(StoredKey key) { return ask<void>(AddKey{std::move(key), {}}); }

Result<void> Store::revoke_key(std::string id, int64_t now_unix_s) {
  return ask<void>(RevokeKey{std::move(id), now_unix_s, {}});
}

Result<std::vector<StoredKey>> Store::keys() {
  return ask<std::vector<StoredKey>>(ListKeys{});
}

Result<int64_t> Store::record_count() { return ask<int64_t>(CountRecords{}); }

Result<void> Store::flush() {
  // Jobs are done in order: an answer means that everything before it is committed.
  TRY(record_count());
  return {};
}

void Store::record(RequestRecord record) {
  if (!queue_.try_push(Job(std::move(record)))) counters_.records_dropped.fetch_add(1);
}

int64_t Store::response_bytes_max() const {
  const ResponseLimits& limits = options_.responses;
  return std::min({limits.bytes_per_key_max, limits.bytes_max, kQueuedResponseBytesMax});
}

bool Store::keep(StoredResponse response) {
  const int64_t bytes = response.bytes();
  // A place in the queue is small, what stands in it may not be.
  const bool fits = bytes <= response_bytes_max() &&
                    queued_response_bytes_.fetch_add(bytes) + bytes <= kQueuedResponseBytesMax;
  if (fits && queue_.try_push(Job(std::move(response)))) return true;
  if (bytes <= response_bytes_max()) queued_response_bytes_.fetch_sub(bytes);
  counters_.responses_dropped.fetch_add(1);
  return false;
}

Result<StoredResponse> Store::find(std::string id, std::string key_id) {
  return ask<StoredResponse>(FindResponse{std::move(id), std::move(key_id), {}});
}

Result<void> Store::remove(std::string id, std::string key_id) {
  return ask<void>(RemoveResponse{std::move(id), std::move(key_id), {}});
}

}  // namespace tandem::service
