#include "service/metrics.h"

#include <algorithm>

#include "base/check.h"
#include "base/json.h"

namespace tandem::service {

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {
  CHECK(std::is_sorted(bounds_.begin(), bounds_.end()));
}

void Histogram::observe(double value) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  counts_[static_cast<size_t>(at - bounds_.begin())].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

std::vector<double> latency_bounds_s() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};
}

namespace {

void append_escaped(std::string& out, std::string_view text, bool quotes) {
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && quotes) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
}

void append_labels(std::string& out, const Labels& labels, std::string_view le = {}) {
  if (labels.empty() && le.empty()) return;
  out += '{';
  bool first = true;
  for (const auto& [name, value] : labels) {
    if (!first) out += ',';
    first = false;
    out += name;
    out += "=\"";
    append_escaped(out, value, true);
    out += '"';
  }
  if (!le.empty()) {
    if (!first) out += ',';
    out += "le=\"";
    out += le;
    out += '"';
  }
  out += '}';
}

void append_number(std::string& out, double value) {
  std::string text;
  append_json_number(text, value);
  out += text;
}

void append_histogram(std::string& out, const std::string& name, const Labels& labels,
                      const Histogram& histogram) {
  int64_t cumulative = 0;
  for (size_t i = 0; i <= histogram.bounds().size(); ++i) {
    cumulative += histogram.bucket(i);
    std::string le = "+Inf";
    if (i < histogram.bounds().size()) {
      le.clear();
      append_number(le, histogram.bounds()[i]);
    }
    out += name + "_bucket";
    append_labels(out, labels, le);
    out += ' ' + std::to_string(cumulative) + '\n';
  }
  out += name + "_sum";
  append_labels(out, labels);
  out += ' ';
  append_number(out, histogram.sum());
  out += '\n' + name + "_count";
  append_labels(out, labels);
  out += ' ' + std::to_string(cumulative) + '\n';
}

}  // namespace

Metrics::Series& Metrics::find_or_add(Kind kind, std::string_view name, std::string_view help,
                                      const Labels& labels) {
  auto family = std::find_if(families_.begin(), families_.end(),
                             [&](const Family& f) { return f.name == name; });
  if (family == families_.end()) {
    families_.push_back(
        {.name = std::string(name), .help = std::string(help), .kind = kind, .series = {}});
    family = families_.end() - 1;
  }
  CHECK_MSG(family->kind == kind, "one metric name, two kinds");
  for (const auto& series : family->series) {
    if (series->labels == labels) return *series;
  }
  auto series = std::make_unique<Series>();
  series->labels = labels;
  family->series.push_back(std::move(series));
  return *family->series.back();
}

Counter& Metrics::counter(std::string_view name, std::string_view help, const Labels& labels) {
  MutexLock lock(mutex_);
  Series& series = find_or_add(Kind::counter, name, help, labels);
  if (series.counter == nullptr) series.counter = std::make_unique<Counter>();
  return *series.counter;
}

Gauge& Metrics::gauge(std::string_view name, std::string_view help, const Labels& labels) {
  MutexLock lock(mutex_);
  Series& series = find_or_add(Kind::gauge, name, help, labels);
  if (series.gauge == nullptr) series.gauge = std::make_unique<Gauge>();
  return *series.gauge;
}

Histogram& Metrics::histogram(std::string_view name, std::string_view help, const Labels& labels,
                              const std::vector<double>& bounds) {
  MutexLock lock(mutex_);
  Series& series = find_or_add(Kind::histogram, name, help, labels);
  if (series.histogram == nullptr) series.histogram = std::make_unique<Histogram>(bounds);
  return *series.histogram;
}

void Metrics::on_render(std::function<void()> refresh) { refreshers_.push_back(std::move(refresh)); }

std::string Metrics::render() const {
  for (const auto& refresh : refreshers_) refresh();
  std::string out;
  MutexLock lock(mutex_);
  for (const Family& family : families_) {
    out += "# HELP " + family.name + ' ';
    append_escaped(out, family.help, false);
    out += "\n# TYPE " + family.name;
    out += family.kind == Kind::counter ? " counter\n"
           : family.kind == Kind::gauge ? " gauge\n"
                                        : " histogram\n";
    for (const auto& series : family.series) {
      if (series->histogram != nullptr) {
        append_histogram(out, family.name, series->labels, *series->histogram);
        continue;
      }
      out += family.name;
      append_labels(out, series->labels);
      out += ' ';
      if (series->counter != nullptr) {
        out += std::to_string(series->counter->value());
      } else {
        append_number(out, series->gauge->value());
      }
      out += '\n';
    }
  }
  return out;
}

}  // namespace tandem::service
