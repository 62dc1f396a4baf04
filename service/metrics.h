// Metrics: counters, gauges and histograms and their Prometheus text. Registering (create or find)
// takes a lock and is done once per series, at start or per bounded label set; updating is lock-free
// from any thread; references stay valid as long as the registry. Labels are bounded sets of ours
// (model, route, outcome): never a key, a user or text of a request. Names that vLLM and llama-server
// use are kept where the meaning is the same (`vllm:`, `llamacpp:` prefixes).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace tandem::service {

using Labels = std::vector<std::pair<std::string, std::string>>;

class Counter {
 public:
  void add(int64_t by = 1) { value_.fetch_add(by, std::memory_order_relaxed); }
  // For counts kept elsewhere (an engine's own totals): takes the value over at scrape time.
  void set_total(int64_t total) { value_.store(total, std::memory_order_relaxed); }
  [[nodiscard]] int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

class Gauge {
 public:
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  void add(double by) { value_.fetch_add(by, std::memory_order_relaxed); }
  [[nodiscard]] double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0.0};
};

class Histogram {
 public:
  // `bounds`: upper bounds of the buckets, ascending; +Inf is implied.
  explicit Histogram(std::vector<double> bounds);
  void observe(double value);

  [[nodiscard]] const std::vector<double>& bounds() const { return bounds_; }
  [[nodiscard]] int64_t bucket(size_t i) const {  // not cumulative; i == bounds().size(): +Inf
    return counts_[i].load(std::memory_order_relaxed);
  }
  [[nodiscard]] double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::vector<double> bounds_;
  std::vector<std::atomic<int64_t>> counts_;
  std::atomic<double> sum_{0.0};
};

// Bucket bounds in seconds that suit latencies from 1 ms to 5 minutes.
std::vector<double> latency_bounds_s();

class Metrics {
 public:
  Metrics() = default;
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Create or find. CHECKs that one name keeps one kind.
  Counter& counter(std::string_view name, std::string_view help, const Labels& labels = {});
  Gauge& gauge(std::string_view name, std::string_view help, const Labels& labels = {});
  Histogram& histogram(std::string_view name, std::string_view help, const Labels& labels = {},
                       const std::vector<double>& bounds = latency_bounds_s());

  // Called at the start of each render(), in order of registration, to refresh gauges. Must be
  // added before the first render.
  void on_render(std::function<void()> refresh);

  // Prometheus text format 0.0.4.
  [[nodiscard]] std::string render() const;

 private:
  enum class Kind : uint8_t { counter, gauge, histogram };
  struct Series {
    Labels labels;
    std::unique_ptr<Counter> counter;
    std::unique_ptr<Gauge> gauge;
    std::unique_ptr<Histogram> histogram;
  };
  struct Family {
    std::string name;
    std::string help;
    Kind kind = Kind::counter;
    std::vector<std::unique_ptr<Series>> series;
  };

  Series& find_or_add(Kind kind, std::string_view name, std::string_view help, const Labels& labels)
      TANDEM_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::vector<Family> families_ TANDEM_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> refreshers_;
};

}  // namespace tandem::service
