#include "service/canary.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "service/version.h"

namespace tandem::service {
namespace {

using policies::CanaryCell;
using policies::CanaryMeasure;

constexpr auto kLookEvery = std::chrono::seconds(1);
constexpr int64_t kRestMs = 60'000;      // before it measures by itself
constexpr int64_t kRestAskedMs = 0;      // when somebody asks
constexpr int64_t kTokens = 64;
constexpr int kRuns = 2;                 // the faster one counts
constexpr auto kRunLimit = std::chrono::seconds(20);
constexpr auto kNeighbourLead = std::chrono::milliseconds(300);
constexpr int kSlowToTell = 2;
constexpr int64_t kHistory = 200;
constexpr int kPromptWords = 400;        // of the neighbour's prompt

protocol::PrepareChat chat_of(std::string text) {
  protocol::PrepareChat chat;
  chat.messages.push_back(Json::object({{"role", Json("user")}, {"content", Json(std::move(text))}}));
  return chat;
}

protocol::Submit greedy(int64_t tokens) {
  protocol::Submit submit;
  submit.sampling.temperature = 0.0;
  submit.max_tokens = tokens;
  submit.ignore_eos = true;
  submit.credit = tokens + 1;
  return submit;
}

// Begins like no other one: nothing of it is in a prefix cache.
std::string long_prompt(int64_t number) {
  std::string out = std::to_string(number);
  for (int i = 0; i < kPromptWords; ++i) out += " " + std::to_string((number + i) % 997);
  return out;
}

}  // namespace

Canary::Canary(Options options, Supervisor& supervisor, Store& store, IncidentSink& sink, const Clock& clock,
               std::function<Pressure()> pressure)
    : options_(options),
      supervisor_(supervisor),
      store_(store),
      sink_(sink),
      clock_(clock),
      pressure_(std::move(pressure)),
      busy_at_(clock.now()) {}

Canary::~Canary() { stop(); }

void Canary::start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
}

void Canary::stop() {
  {
    MutexLock lock(mutex_);
    thread_.request_stop();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Canary::loop(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    bool ordered = false;
    {
      MutexLock lock(mutex_);
      (void)changed_.wait_until(mutex_, std::chrono::steady_clock::now() + kLookEvery);
      ordered = std::exchange(ordered_, false);
    }
    if (stop.stop_requested()) return;
    if (ordered) {
      run_all(stop);
    } else if (options_.on) {
      run_quiet();
    } else {
      (void)look();  // so that show() knows how long clients have been away
    }
  }
}

void Canary::run_quiet() {
  const policies::CanaryBox box = look();
  if (!policies::canary_hindrance(box, kRestMs).empty()) return;
  const std::string now = instances();
  if (now == measured_instances_ && clock_.now() < next_at_) return;
  measured_instances_ = now;
  next_at_ = clock_.now() + options_.every;
  const auto measured = measure(policies::quiet_cell(box));
  note_problem(measured);
  if (measured.ok()) tell(*measured);
}

void Canary::run_all(const std::stop_token& stop) {
  const policies::CanaryBox box = look();
  std::vector<CanaryCell> cells{policies::quiet_cell(box)};
  if (box.optional_ready) cells.insert(cells.end(), {CanaryCell::prefill, CanaryCell::decode});
  for (const CanaryCell cell : cells) {
    if (stop.stop_requested()) break;
    const auto measured = measure(cell);
    note_problem(measured);
    if (!measured.ok()) break;
    tell(*measured);
  }
  MutexLock lock(mutex_);
  running_ = false;
}

void Canary::note_problem(const Result<Measured>& measured) {
  if (!measured.ok()) log::info("canary: nothing measured: " + measured.error().message);
  MutexLock lock(mutex_);
  problem_ = measured.ok() ? "" : measured.error().message;
}

// One slow measure may be a neighbour outside of this service; two in a row are told.
void Canary::tell(const Measured& measured) {
  if (measured.measure.cell != CanaryCell::idle && measured.measure.cell != CanaryCell::alone) return;
  int slow = 0;
  {
    MutexLock lock(mutex_);
    slow_in_a_row_ = measured.verdict.too_slow ? slow_in_a_row_ + 1 : 0;
    slow = slow_in_a_row_;
  }
  const std::string model = supervisor_.tenant(Role::default_model)->info().name;
  if (slow == 0) sink_.clear(IncidentKind::default_slowed, model);
  if (slow == 1) next_at_ = clock_.now() + std::chrono::milliseconds(kRestMs);
  if (slow < kSlowToTell) return;
  sink_.raise(IncidentKind::default_slowed, model,
              std::to_string(measured.measure.us_per_token) + " us per token with the optional model " +
                  policies::canary_cell_name(measured.measure.cell) + ", " +
                  std::to_string(measured.verdict.baseline_us) + " us before",
              Json::object({{"us_per_token", measured.measure.us_per_token},
                            {"baseline_us", measured.verdict.baseline_us},
                            {"loss_permille", measured.verdict.loss_permille}}));
}

std::string Canary::instances() {
  std::string out;
  for (Tenant* one : supervisor_.tenants()) out += one->status().instance_id + " ";
  return out;
}

policies::CanaryBox Canary::look() {
  policies::CanaryBox box;
  bool busy = false;
  for (Tenant* one : supervisor_.tenants()) {
    const ModelStatus status = one->status();
    const bool ready = status.state == ModelState::ready;
    busy = busy || status.slots_busy + status.queue > 0;
    if (one->info().role == Role::default_model) {
      box.default_ready = ready;
    } else {
      box.optional_ready = ready;
      box.optional_off = status.pid == 0;
    }
  }
  box.pressed = pressure_().level != budget::Level::green;
  MutexLock lock(mutex_);
  if (busy) busy_at_ = clock_.now();
  box.idle_ms = busy ? -1 : std::chrono::duration_cast<std::chrono::milliseconds>(clock_.now() - busy_at_).count();
  return box;
}

// Microseconds per token of the fixed decode.
Result<int64_t> Canary::time_decode() {
  int64_t least = 0;
  for (int i = 0; i < kRuns; ++i) {
    TRY_ASSIGN(const TrialAnswer answer,
               supervisor_.tenant(Role::default_model)
                   ->answer(chat_of("Count from one to fifty, in words."), greedy(kTokens), clock_.now() + kRunLimit));
    if (answer.tokens < kTokens || answer.decode_us <= 0) return make_error(Errc::unavailable, "the answer was cut");
    const int64_t us = answer.decode_us / (answer.tokens - 1);
    least = least == 0 ? us : std::min(least, us);
  }
  return least;
}

// The same, while the optional model takes prompts or decodes.
Result<int64_t> Canary::time_beside(CanaryCell cell) {
  Tenant* const neighbour = supervisor_.tenant(Role::optional_model);
  if (neighbour == nullptr) return make_error(Errc::unavailable, "no optional model is configured");
  std::jthread work([&](const std::stop_token& stop) {
    for (int64_t number = clock_.unix_seconds(); !stop.stop_requested(); ++number) {
      const bool prompts = cell == CanaryCell::prefill;
      const auto answer = neighbour->answer(chat_of(prompts ? long_prompt(number) : "Tell a long story."),
                                            greedy(prompts ? 1 : kTokens), clock_.now() + kRunLimit);
      if (!answer.ok()) return;
    }
  });
  {
    MutexLock lock(mutex_);
    const auto end = std::chrono::steady_clock::now() + kNeighbourLead;
    while (changed_.wait_until(mutex_, end) != std::cv_status::timeout) {
    }
  }
  return time_decode();
}

Result<std::vector<CanaryMeasure>> Canary::history() {
  const std::string weights = supervisor_.tenant(Role::default_model)->status().weights_hash;
  TRY_ASSIGN(const std::vector<CanaryRow> rows, store_.canary_history(weights, std::string(kVersion), kHistory));
  std::vector<CanaryMeasure> out;
  for (const CanaryRow& row : rows) {
    if (const auto cell = policies::canary_cell(row.cell)) out.push_back({.cell = *cell, .us_per_token = row.us_per_token});
  }
  return out;
}

int64_t Canary::solo_us() {
  const auto measured = history();
  if (!measured.ok()) return 0;
  for (const CanaryMeasure& each : *measured) {
    if (each.cell == CanaryCell::idle || each.cell == CanaryCell::alone) return each.us_per_token;
  }
  return 0;
}

Result<Canary::Measured> Canary::measure(CanaryCell cell) {
  MutexLock measuring(measure_mutex_);
  const std::string hindrance = policies::canary_hindrance(look(), kRestAskedMs);
  if (!hindrance.empty()) return make_error(Errc::unavailable, hindrance);
  const bool beside = cell == CanaryCell::prefill || cell == CanaryCell::decode;
  const Result<int64_t> us = beside ? time_beside(cell) : time_decode();
  if (!us.ok()) return us.error();
  const std::string disturbed = policies::canary_hindrance(look(), kRestAskedMs);
  if (!disturbed.empty()) return make_error(Errc::unavailable, "void: " + disturbed);
  Measured out{.measure = {.cell = cell, .us_per_token = *us}, .verdict = {}};
  TRY_ASSIGN(const std::vector<CanaryMeasure> earlier, history());
  out.verdict = policies::judge_canary(out.measure, earlier, 10 * options_.loss_percent);
  // What is too slow must not become what later ones are measured by.
  if (!out.verdict.too_slow || beside) {
    TRY(store_.add_canary({.weights = supervisor_.tenant(Role::default_model)->status().weights_hash,
                           .version = std::string(kVersion),
                           .cell = policies::canary_cell_name(cell),
                           .us_per_token = *us,
                           .measured_unix_s = clock_.unix_seconds()}));
  }
  log::info(std::string("canary: ") + policies::canary_cell_name(cell) + " " + std::to_string(*us) +
            " us per token, baseline " + std::to_string(out.verdict.baseline_us) + " us");
  return out;
}

Result<void> Canary::run() {
  const std::string hindrance = policies::canary_hindrance(look(), kRestAskedMs);
  if (!hindrance.empty()) return make_error(Errc::unavailable, "nothing is measured now: " + hindrance);
  MutexLock lock(mutex_);
  ordered_ = running_ = true;
  changed_.notify_all();
  return {};
}

std::string Canary::check_change() {
  if (!options_.on) return "";
  const policies::CanaryBox box = look();
  if (!policies::canary_hindrance(box, kRestAskedMs).empty()) return "";
  const CanaryCell cell = policies::quiet_cell(box);
  // A second look before something is taken back: one may have been disturbed from outside.
  for (int i = 0; i < kSlowToTell; ++i) {
    const auto measured = measure(cell);
    if (!measured.ok() || !measured->verdict.too_slow) return "";
    if (i + 1 == kSlowToTell) {
      return "the default model loses " + std::to_string(measured->verdict.loss_permille / 10) + " % (" +
             std::to_string(measured->measure.us_per_token) + " us per token, " +
             std::to_string(measured->verdict.baseline_us) + " us before); " +
             std::to_string(options_.loss_percent) + " % are allowed";
    }
  }
  return "";
}

Result<Json> Canary::show() {
  const std::string weights = supervisor_.tenant(Role::default_model)->status().weights_hash;
  TRY_ASSIGN(const std::vector<CanaryRow> rows, store_.canary_history(weights, std::string(kVersion), kHistory));
  Json cells = Json::array();
  for (const CanaryCell cell : {CanaryCell::alone, CanaryCell::idle, CanaryCell::prefill, CanaryCell::decode}) {
    std::vector<CanaryMeasure> earlier;
    const CanaryRow* latest = nullptr;
    for (const CanaryRow& row : rows) {
      const auto of = policies::canary_cell(row.cell);
      if (latest == nullptr && of == cell) {
        latest = &row;
      } else if (of.has_value()) {
        earlier.push_back({.cell = *of, .us_per_token = row.us_per_token});
      }
    }
    if (latest == nullptr) continue;
    const auto verdict = policies::judge_canary({.cell = cell, .us_per_token = latest->us_per_token}, earlier,
                                                10 * options_.loss_percent);
    cells.push_back(Json::object({{"cell", latest->cell},
                                  {"us_per_token", latest->us_per_token},
                                  {"baseline_us", verdict.baseline_us},
                                  {"loss_permille", verdict.loss_permille},
                                  {"measured_at", latest->measured_unix_s}}));
  }
  const std::string hindrance = policies::canary_hindrance(look(), kRestAskedMs);
  MutexLock lock(mutex_);
  return Json::object({{"mode", options_.on ? "on" : "off"},
                       {"every_s", int64_t{options_.every.count() / 1000}},
                       {"loss_percent", options_.loss_percent},
                       {"running", running_},
                       {"hindrance", hindrance},
                       {"problem", problem_},
                       {"cells", std::move(cells)}});
}

}  // namespace tandem::service
