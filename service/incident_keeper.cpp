#include "service/incident_keeper.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/log.h"

namespace tandem::service {
namespace {

constexpr auto kStepEvery = std::chrono::seconds(1);
constexpr size_t kWriteMax = 256;  // rows of one transaction
constexpr int64_t kInheritedMax = 1000;

constexpr const char* kOver = "it is over";
constexpr const char* kRestarted = "tandemd restarted";

std::string subject(const IncidentRow& row) {
  return "incident " + std::to_string(row.id) + " " + row.kind +
         (row.model.empty() ? "" : " of " + row.model);
}

std::string times(int64_t repeats) { return std::to_string(repeats + 1) + " times"; }

void log_raise(const IncidentFacts& facts, const std::string& line) {
  switch (facts.severity) {
    case Severity::info: return log::info(line);
    case Severity::warning: return log::warning(line);
    case Severity::error: return log::error(line);
  }
}

bool matches(const IncidentRow& row, const IncidentFilter& filter) {
  if (filter.id != 0 && row.id != filter.id) return false;
  if (row.cleared_unix_s == 0) return true;
  return !filter.open_only && row.cleared_unix_s >= filter.since_unix_s;
}

}  // namespace

IncidentKeeper::IncidentKeeper(Options options, IncidentStore& store, Metrics& metrics,
                               const Clock& clock)
    : options_(std::move(options)),
      store_(store),
      metrics_(metrics),
      clock_(clock),
      lost_(metrics.counter("tandem_incidents_lost_total",
                            "Incidents that were forgotten before the store could be written")) {
  for (const IncidentFacts& facts : incident_table()) {
    metrics_.counter("tandem_incidents_total", "Incidents raised, without repeats",
                     {{"kind", std::string(facts.name)}});
  }
}

IncidentKeeper::~IncidentKeeper() {
  {
    MutexLock lock(mutex_);
    thread_.request_stop();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  step();
}

IncidentKeeper::Key IncidentKeeper::key_of(IncidentKind kind, std::string_view model) const {
  const bool known = std::find(options_.models.begin(), options_.models.end(), model) !=
                     options_.models.end();
  return {kind, known ? std::string(model) : std::string()};
}

void IncidentKeeper::show_open(const Key& key, bool open) {
  metrics_
      .gauge("tandem_incidents_open", "1 while an incident is open",
             {{"kind", incident_kind_name(key.first)}, {"model", key.second}})
      .set(open ? 1.0 : 0.0);
}

// What is in memory goes before what is in the store. Bounded: an open one is kept at any rate, but
// there is only one of a kind and model.
void IncidentKeeper::keep_for_store(const IncidentRow& row) {
  unwritten_[row.id] = row;
  if (unwritten_.size() <= options_.unwritten_max) return;
  const auto closed = std::find_if(unwritten_.begin(), unwritten_.end(), [](const auto& entry) {
    return entry.second.cleared_unix_s != 0;
  });
  if (closed == unwritten_.end()) return;
  unwritten_.erase(closed);
  lost_.add();
}

void IncidentKeeper::load() {
  const auto last = store_.last_incident_id();
  const auto rows = store_.incidents({.open_only = true, .limit = kInheritedMax});
  if (!last.ok() || !rows.ok()) {
    log::error("earlier incidents cannot be read: " + (last.ok() ? rows.error() : last.error()).message);
  }
  MutexLock lock(mutex_);
  // No id is given twice, even when nobody knows the earlier ones.
  next_id_ = (last.ok() ? *last : clock_.unix_seconds()) + 1;
  inherited_until_ = clock_.now() + options_.inherited_for;
  if (!rows.ok()) return;
  for (IncidentRow row : *rows) {
    const auto kind = incident_kind(row.kind);
    const bool configured = kind.has_value() && key_of(*kind, row.model).second == row.model;
    const Key key{kind.value_or(IncidentKind{}), row.model};
    if (configured && !open_.contains(key)) {
      show_open(key, true);
      open_[key] = {.row = std::move(row), .inherited = true};
      continue;
    }
    // Of a kind or model that this tandemd does not have: nobody would ever clear it.
    row.cleared_unix_s = clock_.unix_seconds();
    row.cleared_why = kRestarted;
    keep_for_store(row);
  }
}

void IncidentKeeper::start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void IncidentKeeper::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      MutexLock lock(mutex_);
      const auto end = std::chrono::steady_clock::now() + kStepEvery;
      while (!news_ && !stop.stop_requested()) {
        if (changed_.wait_until(mutex_, end) == std::cv_status::timeout) break;
      }
    }
    step();
  }
}

void IncidentKeeper::step() {
  std::vector<std::string> lines;
  std::vector<IncidentRow> rows;
  {
    MutexLock lock(mutex_);
    news_ = false;
    if (clock_.now() >= inherited_until_) {
      for (auto at = open_.begin(); at != open_.end();) {
        const auto here = at++;
        if (here->second.inherited) lines.push_back(close(here, kRestarted));
      }
    }
    for (const auto& [id, row] : unwritten_) {
      if (rows.size() < kWriteMax) rows.push_back(row);
    }
  }
  for (const std::string& line : lines) log::info(line);
  if (rows.empty() || !store_.put_incidents(rows).ok()) return;  // why not is an incident itself
  MutexLock lock(mutex_);
  for (const IncidentRow& row : rows) {
    const auto at = unwritten_.find(row.id);
    if (at != unwritten_.end() && at->second == row) unwritten_.erase(at);
  }
}

void IncidentKeeper::raise(IncidentKind kind, std::string_view model, std::string text,
                           Json numbers) {
  const IncidentFacts& facts = incident_facts(kind);
  const Key key = key_of(kind, model);
  std::string line;
  {
    MutexLock lock(mutex_);
    const auto [at, is_first] = open_.try_emplace(key);
    Open& open = at->second;
    IncidentRow& row = open.row;
    row.text = std::move(text);
    row.numbers = numbers.dump();
    row.repeated_unix_s = clock_.unix_seconds();
    if (is_first) {
      row.id = next_id_++;
      row.kind = facts.name;
      row.model = key.second;
      row.raised_unix_s = row.repeated_unix_s;
      line = subject(row) + ": " + row.text + ". " + std::string(facts.next);
      show_open(key, true);
    } else {
      ++row.repeats;
      const bool quiet = !open.inherited &&
                         clock_.now() < open.logged_at + options_.repeat_line_every;
      if (!quiet) line = subject(row) + ", " + times(row.repeats) + ": " + row.text;
      open.inherited = false;
    }
    if (!line.empty()) open.logged_at = clock_.now();
    keep_for_store(row);
    if (is_first) {
      tell_thread();
      metrics_.counter("tandem_incidents_total", "Incidents raised, without repeats",
                       {{"kind", std::string(facts.name)}})
          .add();
    }
  }
  if (!line.empty()) log_raise(facts, line);
}

std::string IncidentKeeper::close(std::map<Key, Open>::iterator at, std::string why) {
  IncidentRow& row = at->second.row;
  row.cleared_unix_s = clock_.unix_seconds();
  row.cleared_why = std::move(why);
  std::string line = subject(row) + " closed: " + row.cleared_why + ", after " +
                     std::to_string(row.cleared_unix_s - row.raised_unix_s) + " s";
  if (row.repeats > 0) line += ", raised " + times(row.repeats);
  show_open(at->first, false);
  keep_for_store(row);
  open_.erase(at);
  return line;
}

void IncidentKeeper::clear(IncidentKind kind, std::string_view model) {
  const Key key = key_of(kind, model);
  std::string line;
  {
    MutexLock lock(mutex_);
    const auto at = open_.find(key);
    if (at == open_.end()) return;
    line = close(at, kOver);
    tell_thread();
  }
  log::info(line);
}

IncidentKeeper::List IncidentKeeper::list(const IncidentFilter& filter) {
  List out;
  std::map<int64_t, IncidentRow> by_id;
  IncidentFilter wide = filter;
  size_t extra = 0;
  {
    MutexLock lock(mutex_);
    extra = unwritten_.size();
  }
  // Rows of the store that memory knows to be over must not take the places of others.
  wide.limit = std::min<int64_t>(filter.limit, INT64_MAX / 2) + static_cast<int64_t>(extra);
  auto stored = store_.incidents(wide);
  if (stored.ok()) {
    for (IncidentRow& row : *stored) by_id[row.id] = std::move(row);
  } else {
    out.complete = false;
    out.reason = stored.error().message;
  }
  {
    MutexLock lock(mutex_);
    for (const auto& [key, open] : open_) by_id[open.row.id] = open.row;
    for (const auto& [id, row] : unwritten_) by_id[id] = row;
  }
  for (auto at = by_id.rbegin(); at != by_id.rend(); ++at) {
    if (static_cast<int64_t>(out.rows.size()) >= filter.limit) break;
    if (matches(at->second, filter)) out.rows.push_back(std::move(at->second));
  }
  return out;
}

Result<IncidentRow> IncidentKeeper::acknowledge(int64_t id) {
  while (true) {
    const List found = list({.id = id, .limit = 1});
    if (found.rows.empty()) {
      if (!found.complete) return make_error(Errc::unavailable, found.reason);
      return make_error(Errc::not_found, "there is no incident " + std::to_string(id));
    }
    if (auto done = acknowledge_row(found.rows.front())) return *std::move(done);
  }
}

// Empty: it was closed since `row` was read; what is written must not open it again.
std::optional<IncidentRow> IncidentKeeper::acknowledge_row(IncidentRow row) {
  MutexLock lock(mutex_);
  const auto open = std::find_if(open_.begin(), open_.end(),
                                 [&](const auto& entry) { return entry.second.row.id == row.id; });
  const auto waiting = unwritten_.find(row.id);
  if (open != open_.end()) {
    row = open->second.row;
  } else if (waiting != unwritten_.end()) {
    row = waiting->second;
  } else if (row.cleared_unix_s == 0) {
    return std::nullopt;
  }
  if (row.acknowledged_unix_s != 0) return row;
  row.acknowledged_unix_s = clock_.unix_seconds();
  if (open != open_.end()) open->second.row = row;
  keep_for_store(row);
  tell_thread();
  return row;
}

void IncidentKeeper::tell_thread() {
  news_ = true;
  changed_.notify_all();
}

std::vector<std::string> IncidentKeeper::open_kinds(Severity at_least) const {
  MutexLock lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [key, open] : open_) {  // in the order of kinds
    const IncidentFacts& facts = incident_facts(key.first);
    if (facts.severity < at_least || (!out.empty() && out.back() == facts.name)) continue;
    out.emplace_back(facts.name);
  }
  return out;
}

size_t IncidentKeeper::open_count() const {
  MutexLock lock(mutex_);
  return open_.size();
}

bool IncidentKeeper::is_open(IncidentKind kind, std::string_view model) const {
  MutexLock lock(mutex_);
  return open_.contains(key_of(kind, model));
}

}  // namespace tandem::service
