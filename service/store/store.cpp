#include "service/store/store.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "base/log.h"
#include "base/overloaded.h"
#include "service/store/writer.h"

namespace tandem::service {
namespace {

constexpr size_t kBatchMax = 256;
constexpr auto kExpireEvery = std::chrono::seconds(60);
constexpr auto kRetryEvery = std::chrono::seconds(1);
constexpr int64_t kQueuedResponseBytesMax = int64_t{64} << 20;

}  // namespace

template <typename T>
class Store::Asked final : public Store::Task {
 public:
  Asked(Access access, std::function<Result<T>(Writer&)> what)
      : access_(access), what_(std::move(what)) {}
  std::future<Result<T>> answer() { return done_.get_future(); }
  void run(Store& store) override {
    Result<T> result = what_(*store.writer_);
    if (access_ == Access::writes) {
      store.note_write(result.ok() ? Result<void>() : Result<void>(result.error()));
    }
    done_.set_value(std::move(result));
  }

 private:
  const Access access_;
  const std::function<Result<T>(Writer&)> what_;
  std::promise<Result<T>> done_;
};

Result<std::unique_ptr<Store>> Store::open(Options options) {
  auto writer = Writer::open(options);
  if (writer.ok()) {
    remove_copy(options.copy_path);  // of a tandemd that was killed
    return std::make_unique<Store>(std::move(options), std::move(writer).value(), Result<void>());
  }
  const Error problem = writer.error();
  if (problem.code != Errc::io || options.copy_path.empty()) return problem;
  log::error("store: " + problem.message + "; it is read from a copy until it can be written");
  TRY_ASSIGN(std::unique_ptr<Writer> copy, Writer::open_copy(options));
  return std::make_unique<Store>(std::move(options), std::move(copy), problem);
}

Store::Store(Options options, std::unique_ptr<Writer> writer, Result<void> opened)
    : options_(std::move(options)),
      copied_(!opened.ok()),
      queue_(options_.queue_max),
      writer_(std::move(writer)),
      thread_([this, opened = std::move(opened)] {
        if (!opened.ok()) note_write(opened);
        run();
      }) {}

// The thread ends when the queue is empty; jthread joins.
Store::~Store() {
  closing_.store(true);
  queue_.close();
}

int64_t Store::unix_seconds() const {
  return (options_.clock == nullptr ? system_clock_ : *options_.clock).unix_seconds();
}

StoreHealth Store::health() const {
  MutexLock lock(health_mutex_);
  return health_;
}

void Store::note_write(const Result<void>& written) {
  const bool failed = !written.ok() && (written.error().code == Errc::io ||
                                        written.error().code == Errc::corrupt);
  if (!written.ok() && !failed) return;  // the request was at fault, not the file
  if (failed) counters_.errors.fetch_add(1);
  MutexLock lock(health_mutex_);
  if (failed) {
    health_.reason = written.error().message;
    if (health_.writable) health_.failing_since_unix_s = unix_seconds();
    retry_at_ = std::chrono::steady_clock::now() + kRetryEvery;
  } else {
    health_.failing_since_unix_s = 0;
    retry_at_ = SteadyTime::max();
  }
  health_.writable = !failed;
}

// Empty: the end. Old responses go even while there is nothing else to do.
std::optional<Store::Job> Store::next_job() {
  while (true) {
    const SteadyTime now = std::chrono::steady_clock::now();
    if (now >= expire_at_) expire_responses();
    // When something else could be written, what waits can be as well.
    const bool failing = retry_at_ != SteadyTime::max();
    if (failing ? now >= retry_at_ : !records_.empty() || !responses_.empty()) retry();
    if (closing_.load()) return queue_.pop();
    if (auto job = queue_.pop_until(std::min(expire_at_, retry_at_))) return job;
  }
}

void Store::expire_responses() {
  expire_at_ = std::chrono::steady_clock::now() + kExpireEvery;
  // Nothing is written where nothing is stored: that says nothing about the file.
  if (writer_->responses.bytes() == 0) return;
  note_write(writer_->responses.expire(unix_seconds()));
  counters_.response_bytes.store(writer_->responses.bytes());
}

bool Store::have_file() {
  if (!copied_) return true;
  auto writer = Writer::open(options_);
  if (!writer.ok()) {
    note_write(writer.error());
    return false;
  }
  writer_ = std::move(writer).value();
  copied_ = false;
  remove_copy(options_.copy_path);
  log::info("store: " + options_.path + " can be written, and is used from here on");
  return true;
}

void Store::retry() {
  if (!have_file()) return;
  if (records_.empty() && responses_.empty()) return note_write(writer_->probe());
  write_records();
  if (retry_at_ == SteadyTime::max() || records_.empty()) write_waiting_responses();
}

// What cannot be written now stays, the newest queue_max of it.
void Store::write_records() {
  while (!records_.empty()) {
    const size_t count = std::min(records_.size(), kBatchMax);
    const auto end = records_.begin() + static_cast<std::ptrdiff_t>(count);
    const std::vector<RequestRecord> batch(records_.begin(), end);
    const auto written = writer_->write_batch(batch, options_.record_rows);
    note_write(written);
    if (!written.ok()) break;
    counters_.records_written.fetch_add(static_cast<int64_t>(count));
    records_.erase(records_.begin(), end);
  }
  if (records_.size() > options_.queue_max) {
    const size_t lost = records_.size() - options_.queue_max;
    records_.erase(records_.begin(), records_.begin() + static_cast<std::ptrdiff_t>(lost));
    counters_.records_dropped.fetch_add(static_cast<int64_t>(lost));
  }
  counters_.records_waiting.store(static_cast<int64_t>(records_.size()));
}

// Until it is written or lost it counts as queued: what waits is bounded with the rest.
void Store::write_response(StoredResponse response) {
  const auto written = writer_->responses.add(writer_->database, response);
  note_write(written);
  if (!written.ok() && written.error().code == Errc::io) {
    return responses_.push_back(std::move(response));
  }
  queued_response_bytes_.fetch_sub(response.bytes());
  (written.ok() ? counters_.responses_written : counters_.responses_dropped).fetch_add(1);
}

void Store::write_waiting_responses() {
  for (StoredResponse& response : std::exchange(responses_, {})) write_response(std::move(response));
}

Result<StoredResponse> Store::find_response(const std::string& id, const std::string& key_id) {
  for (const StoredResponse& response : responses_) {
    if (response.id == id && response.key_id == key_id) return response;
  }
  return writer_->responses.find(id, key_id, unix_seconds());
}

Result<void> Store::remove_response(const std::string& id, const std::string& key_id) {
  for (auto at = responses_.begin(); at != responses_.end(); ++at) {
    if (at->id != id || at->key_id != key_id) continue;
    queued_response_bytes_.fetch_sub(at->bytes());
    responses_.erase(at);
    return {};
  }
  return writer_->responses.remove(writer_->database, id, key_id);
}

void Store::do_job(Job& job) {
  std::visit(Overloaded{[](RequestRecord&) {},
                        [&](StoredResponse& response) { write_response(std::move(response)); },
                        [&](LearnedRow& row) {
                          const auto written = writer_->learned.put(writer_->database, row);
                          note_write(written);
                          if (!written.ok()) {
                            log::warning("learned numbers are lost: " + written.error().message);
                          }
                        },
                        [&](std::unique_ptr<Task>& task) { task->run(*this); }},
             job);
  counters_.response_bytes.store(writer_->responses.bytes());
}

void Store::run() {
  std::optional<Job> job = next_job();
  while (job.has_value()) {
    // Records that stand in a row go into one transaction.
    size_t taken = 0;
    while (job.has_value() && std::holds_alternative<RequestRecord>(*job)) {
      records_.push_back(std::move(std::get<RequestRecord>(*job)));
      job = ++taken < kBatchMax ? queue_.try_pop() : std::nullopt;
    }
    // While the file cannot be written, retry() does it: not every record is another attempt.
    if (taken > 0 && (retry_at_ == SteadyTime::max() || records_.size() > options_.queue_max)) {
      write_records();
    }
    counters_.records_waiting.store(static_cast<int64_t>(records_.size()));
    if (job.has_value()) do_job(*job);
    job = next_job();
  }
  if (have_file()) {
    write_records();
    write_waiting_responses();
  }
  if (copied_) remove_copy(options_.copy_path);
  counters_.records_dropped.fetch_add(static_cast<int64_t>(records_.size()));
  counters_.responses_dropped.fetch_add(static_cast<int64_t>(responses_.size()));
}

template <typename T>
Result<T> Store::ask(Access access, std::function<Result<T>(Writer&)> what) {
  auto task = std::make_unique<Asked<T>>(access, std::move(what));
  auto answer = task->answer();
  if (!queue_.try_push(Job(std::unique_ptr<Task>(std::move(task))))) {
    return make_error(Errc::unavailable, "the store is behind: " +
                                             std::to_string(queue_.capacity()) + " jobs wait");
  }
  return answer.get();
}

// The lambdas refer to arguments of callers that wait until they have run.

Result<void> Store::add_key(const StoredKey& key) {
  return ask<void>(Access::writes, [&](Writer& w) { return w.add(key); });
}

Result<void> Store::revoke_key(const std::string& id, int64_t now_unix_s) {
  return ask<void>(Access::writes, [&](Writer& w) { return w.revoke_key(id, now_unix_s); });
}

Result<std::vector<StoredKey>> Store::keys() {
  return ask<std::vector<StoredKey>>(Access::reads, [](Writer& w) { return w.read_keys(); });
}

Result<int64_t> Store::record_count() {
  return ask<int64_t>(Access::reads, [](Writer& w) { return w.read_count(); });
}

Result<void> Store::flush() {
  // Jobs are done in order: an answer means that everything before it was tried.
  return ask<void>(Access::reads, [this](Writer&) -> Result<void> {
    write_records();
    if (records_.empty()) return {};
    return make_error(Errc::io, std::to_string(records_.size()) +
                                    " request records cannot be written: " + health().reason);
  });
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
  return ask<StoredResponse>(Access::reads,
                             [&](Writer&) { return find_response(id, key_id); });
}

Result<void> Store::remove(std::string id, std::string key_id) {
  return ask<void>(Access::writes, [&](Writer&) { return remove_response(id, key_id); });
}

Result<void> Store::put_incidents(const std::vector<IncidentRow>& rows) {
  return ask<void>(Access::writes, [&](Writer& w) { return w.incidents.put(w.database, rows); });
}

Result<std::vector<IncidentRow>> Store::incidents(const IncidentFilter& filter) {
  return ask<std::vector<IncidentRow>>(Access::reads,
                                       [&](Writer& w) { return w.incidents.list(filter); });
}

Result<int64_t> Store::last_incident_id() {
  return ask<int64_t>(Access::reads, [](Writer& w) { return w.incidents.last_id(); });
}

Result<int64_t> Store::add_budget_change(const BudgetChange& change, int64_t undoes) {
  return ask<int64_t>(Access::writes,
                      [&](Writer& w) { return w.budgets.add(w.database, change, undoes); });
}

Result<std::vector<BudgetChange>> Store::budget_history(const std::string& model, int64_t limit) {
  return ask<std::vector<BudgetChange>>(Access::reads,
                                        [&](Writer& w) { return w.budgets.list(model, limit); });
}

Result<void> Store::add_canary(const CanaryRow& row) {
  return ask<void>(Access::writes, [&](Writer& w) { return w.canary.add(w.database, row); });
}

Result<std::vector<CanaryRow>> Store::canary_history(const std::string& weights, const std::string& version,
                                                     int64_t limit) {
  return ask<std::vector<CanaryRow>>(Access::reads,
                                     [&](Writer& w) { return w.canary.list(weights, version, limit); });
}

bool Store::put_learned(LearnedRow row) { return queue_.try_push(Job(std::move(row))); }

Result<std::optional<LearnedNumbers>> Store::learned(const LearnedKey& key) {
  return ask<std::optional<LearnedNumbers>>(Access::reads,
                                            [&](Writer& w) { return w.learned.find(key); });
}

Result<std::vector<LearnedRow>> Store::learned_of_weights(const std::string& weights) {
  return ask<std::vector<LearnedRow>>(Access::reads,
                                      [&](Writer& w) { return w.learned.of_weights(weights); });
}

}  // namespace tandem::service
