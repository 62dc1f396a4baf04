// IncidentRecorder: an IncidentSink that remembers, for tests of those who raise. Any thread.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "service/incident_sink.h"

namespace tandem::service {

class IncidentRecorder final : public IncidentSink {
 public:
  struct Event {
    bool raised = false;
    IncidentKind kind{};
    std::string model;
    std::string text;
    Json numbers;
  };

  void raise(IncidentKind kind, std::string_view model, std::string text, Json numbers) override {
    MutexLock lock(mutex_);
    events_.push_back({true, kind, std::string(model), std::move(text), std::move(numbers)});
  }
  void clear(IncidentKind kind, std::string_view model) override {
    MutexLock lock(mutex_);
    events_.push_back({false, kind, std::string(model), "", Json()});
  }
  [[nodiscard]] std::vector<Event> events() const {
    MutexLock lock(mutex_);
    return events_;
  }
  // Raised and not cleared since.
  [[nodiscard]] bool open(IncidentKind kind, std::string_view model) const {
    MutexLock lock(mutex_);
    const auto last = std::find_if(events_.rbegin(), events_.rend(), [&](const Event& event) {
      return event.kind == kind && event.model == model;
    });
    return last != events_.rend() && last->raised;
  }

 private:
  mutable Mutex mutex_;
  std::vector<Event> events_ TANDEM_GUARDED_BY(mutex_);
};

}  // namespace tandem::service
