#include "service/supervisor.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "base/overloaded.h"
#include "service/foreign_plan.h"
#include "service/leftover_engine.h"
#include "service/model_figures.h"

namespace tandem::service {

namespace {

constexpr auto kProbeLimit = std::chrono::seconds(30);
constexpr auto kLongestWait = std::chrono::seconds(1);  // the heartbeat of the control page
constexpr auto kStatsEvery = std::chrono::seconds(10);
constexpr auto kStatsLimit = std::chrono::seconds(2);

SlotOptions slot_options(const ModelConfig& model, const Config& config, Role role,
                         const std::string& lease_id,
                         std::function<Result<CacheFacts>(const ModelConfig&)> cache_facts) {
  return {.model = model,
          .engines = config.engines,
          .sanitizer = config.sanitizer,
          .role = role,
          .run_dir = config.server.run_dir,
          .log_level = config.server.log_level,
          .lease_id = model.is_foreign() ? "" : lease_id,  // engines of others take no turns
          .cache_facts = std::move(cache_facts)};
}

}  // namespace

Supervisor::Seat::Seat(Supervisor& owner, size_t index, const ModelConfig& model,
                       const Config& config, Role role, Launcher& launcher, const Clock& clock)
    : tenant(model, config.queue, role, clock, *this),
      slot(slot_options(model, config, role, owner.lease_id_,
                        [&owner](const ModelConfig& of) {
                          return read_cache_facts(of, owner.engine_, owner.describe_);
                        }),
           tenant, launcher, *this, clock),
      owner_(owner),
      index_(index),
      model_(model),
      sanitizer_(config.sanitizer),
      trial_deadline_(config.engines.trial_deadline) {}

void Supervisor::Seat::on_welcome(uint64_t epoch, protocol::Welcome welcome) {
  owner_.push({index_, Welcomed{epoch, std::move(welcome)}});
}
void Supervisor::Seat::on_state(uint64_t epoch, protocol::StateChange change) {
  owner_.push({index_, StateChanged{epoch, std::move(change)}});
}
void Supervisor::Seat::on_drained(uint64_t epoch) { owner_.push({index_, Drained{epoch}}); }
void Supervisor::Seat::on_lost(uint64_t epoch, std::string reason) {
  owner_.push({index_, Lost{epoch, std::move(reason)}});
}

void Supervisor::Seat::probe(uint64_t epoch, protocol::ModelFacts facts) {
  const bool adopted = tenant.status().adopted;
  prober_ = std::jthread([this, epoch, adopted, budget = slot.budget(), facts = std::move(facts)] {
    if (adopted && !model_.is_foreign()) tell_budget(budget);
    const SteadyTime deadline = std::chrono::steady_clock::now() + kProbeLimit;
    std::optional<Error> broken;  // the engine, not its template
    const auto render = [&](const policies::ProbeChat& chat) -> Result<std::string> {
      if (broken.has_value()) return *broken;
      protocol::PrepareChat prepare;
      prepare.messages = chat.messages;
      prepare.tools = chat.tools;
      prepare.template_args = chat.variables;
      auto text = tenant.render(prepare, deadline);
      if (text.ok()) return std::move(text->text);
      if (text.error().code != Errc::invalid_argument && text.error().code != Errc::too_large) {
        broken = text.error();
      }
      return std::move(text).error();
    };
    // Only wanted where they come soon: an engine that is slow, or was adopted with work, is no reason
    // to wait.
    std::optional<SteadyTime> trial_end;
    AskModel answer;
    if (trial_deadline_ > Duration::zero()) {
      answer = [&](const protocol::PrepareChat& chat,
                   protocol::Submit submit) -> Result<TrialAnswer> {
        if (broken.has_value()) return *broken;
        if (!trial_end.has_value()) {
          trial_end = std::chrono::steady_clock::now() + trial_deadline_;
          TRY_ASSIGN(const protocol::Stats stats, tenant.stats(*trial_end));
          if (stats.running + stats.waiting > 0) {
            return make_error(Errc::exhausted, "the engine is at work");
          }
        }
        return tenant.answer(chat, std::move(submit), *trial_end);
      };
    }
    auto found = find_profile(model_, sanitizer_, facts, {.render = render, .answer = answer});
    if (broken.has_value()) found = *broken;
    owner_.push({index_, Probed{epoch, std::move(found)}});
  });
}

// It may have been started with others, or changed since.
void Supervisor::Seat::tell_budget(const ModelBudget& budget) {
  protocol::Resize wanted{.kv_bytes = std::nullopt,
                          .slots = budget[BudgetField::slots],
                          .batch_tokens = budget[BudgetField::batch_tokens],
                          .shed_chunk_tokens = std::nullopt};
  if (budget[BudgetField::kv] > 0) wanted.kv_bytes = budget[BudgetField::kv];
  const auto told = tenant.client().resize(wanted, std::chrono::steady_clock::now() + kProbeLimit);
  if (told.ok()) return;
  log::warning("model " + model_.name + ": the adopted engine keeps the budgets it has: " +
               told.error().message);
}

budget::Profile Supervisor::Seat::profile_of(const ModelBudget& budget) const {
  ModelConfig model = model_;
  put_budget(budget, model);
  return start_profile(model, owner_.engine_, owner_.describe_);
}

void Supervisor::Seat::ask_stats() {
  asker_ = std::jthread([this] {
    auto stats = tenant.stats(std::chrono::steady_clock::now() + kStatsLimit);
    if (stats.ok()) owner_.push({index_, StatsSeen{std::move(*stats)}});
  });
}

// An engine that hangs answers nothing: the next question waits for the last one's deadline.
void Supervisor::ask_stats() {
  if (stopping_ || clock_.now() - stats_at_ < kStatsEvery) return;
  stats_at_ = clock_.now();
  for (const auto& seat : seats_) {
    if (seat->slot.status().state == ModelState::ready) seat->ask_stats();
  }
}

Supervisor::Supervisor(const Config& config, Launcher& launcher, const Clock& clock, Outside outside,
                       std::function<void()> on_change)
    : clock_(clock),
      launcher_(launcher),
      run_dir_(config.server.run_dir),
      lease_id_(outside.lease_id),
      engine_(config.engines.binary),
      describe_(std::move(outside.describe)),
      on_change_(std::move(on_change)),
      reclaimer_(outside.reclaimer),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  CHECK(wake_.valid());
  seats_.push_back(std::make_unique<Seat>(*this, 0, config.default_model, config,
                                          Role::default_model, launcher, clock));
  if (config.optional_model.has_value()) {
    seats_.push_back(std::make_unique<Seat>(*this, 1, *config.optional_model, config,
                                            Role::optional_model, launcher, clock));
  }
  std::vector<RestartDriver::Seat> seats;
  for (const auto& seat : seats_) {
    seats.push_back({.role = seat->tenant.info().role,
                     .slot = seat->slot,
                     .tenant = seat->tenant,
                     .profile = start_profile(seat->slot.model(), engine_, describe_)});
  }
  driver_ = std::make_unique<RestartDriver>(config.engines,
                                            RestartDriver::Parts{.clock = clock,
                                                                 .host = outside.host,
                                                                 .reclaimer = outside.reclaimer,
                                                                 .incidents = outside.incidents,
                                                                 .page = outside.page,
                                                                 .learned = outside.learned},
                                            std::move(seats));
}

Supervisor::~Supervisor() {
  thread_.request_stop();
  wake();
}

void Supervisor::wake() const {
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);  // full: it is awake already
}

void Supervisor::push(Message message) {
  // A connection gives a handful of messages in its life: a full queue is a bug.
  CHECK(messages_.try_push(std::move(message)));
  wake();
}

void Supervisor::start() {
  begin();
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void Supervisor::run(const std::stop_token& stop) {
  while (!stop.stop_requested() && !stopped_) poll_once(kLongestWait);
}

void Supervisor::begin() {
  if (seats_.size() == 1) (void)end_leftover_engine(run_dir_, "optional", launcher_);
  driver_->begin();
}

void Supervisor::stop(bool engines_outlive) {
  if (!thread_.joinable()) return;
  begin_stop(engines_outlive);
  thread_.join();
}

void Supervisor::begin_stop(bool engines_outlive) {
  draining_ = true;
  push({0, Stop{engines_outlive}});
}

bool Supervisor::stopped() const { return stopped_; }

Result<std::future<void>> Supervisor::post(Role role, ModelCommand command) {
  const size_t seat = role == Role::default_model ? 0 : 1;
  if (seat >= seats_.size()) return make_error(Errc::not_found, "no optional model is configured");
  Command message{command, {}};
  auto done = message.done.get_future();
  if (!messages_.try_push({seat, std::move(message)})) {
    return make_error(Errc::exhausted, "too many commands wait");
  }
  wake();
  return done;
}

void Supervisor::note_guard_stop(Role role, std::string how) {
  const size_t seat = role == Role::default_model ? 0 : 1;
  if (seat < seats_.size() && messages_.try_push({seat, GuardStopped{std::move(how)}})) wake();
}

void Supervisor::use_budget(Role role, const ModelBudget& budget) {
  const size_t seat = role == Role::default_model ? 0 : 1;
  CHECK(seat < seats_.size());
  Tenant& tenant = seats_[seat]->tenant;
  tenant.set_slots(budget[BudgetField::slots]);
  tenant.set_prompt_tokens_max(budget[BudgetField::prompt_tokens_max]);
  push({seat, UseBudget{budget, seats_[seat]->profile_of(budget)}});
}

std::vector<Supervisor::Seat*> Supervisor::wait(std::chrono::milliseconds wait_max) {
  std::vector<pollfd> polls{{wake_.get(), POLLIN, 0}};
  SteadyTime next = clock_.now() + std::min(wait_max, driver_->next_look());
  for (const auto& seat : seats_) {
    polls.push_back({seat->slot.pidfd(), POLLIN, 0});
    next = std::min(next, seat->slot.next_deadline());
  }
  polls.push_back({reclaimer_.fd(), POLLIN, 0});
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(std::max(next - clock_.now(), SteadyTime::duration(0)));
  (void)::poll(polls.data(), polls.size(), static_cast<int>(left.count()));
  uint64_t count = 0;
  (void)!::read(wake_.get(), &count, sizeof count);
  std::vector<Seat*> ended;
  for (size_t i = 0; i < seats_.size(); ++i) {
    if ((polls[i + 1].revents & POLLIN) != 0) ended.push_back(seats_[i].get());
  }
  return ended;
}

void Supervisor::poll_once(std::chrono::milliseconds wait_max) {
  const std::vector<Seat*> ended = wait(wait_max);
  for (Seat* seat : ended) seat->slot.collect_end();
  while (auto message = messages_.try_pop()) handle(std::move(*message));
  for (Seat* seat : ended) driver_->note_end(seat->tenant.info().role);
  driver_->step();
  // The answer shows the state after the command: who waits for a new state must not see the old one.
  for (std::promise<void>& done : answered_) done.set_value();
  answered_.clear();
  ask_stats();
  if (stopping_ && driver_->ended()) stopped_ = true;
  std::string now = states();
  if (now == last_states_) return;
  last_states_ = std::move(now);
  if (on_change_) on_change_();
}

std::string Supervisor::states() const {
  std::string out;
  for (const auto& seat : seats_) {
    out += std::to_string(static_cast<int>(seat->slot.status().state)) + ',' +
           std::to_string(seat->slot.pidfd()) + ';';
  }
  return out;
}

void Supervisor::handle(Message message) {
  EngineSlot& slot = seats_[message.seat]->slot;
  std::visit(Overloaded{[&](const Welcomed& m) { slot.on_welcome(m.epoch, m.welcome); },
                        [&](const StateChanged& m) { slot.on_state(m.epoch, m.change); },
                        [&](Probed& m) { slot.on_probed(m.epoch, std::move(m.found)); },
                        [&](const Drained& m) { slot.on_drained(m.epoch); },
                        [&](const Lost& m) { slot.on_lost(m.epoch, m.reason); },
                        [&](Command& command) {
                          if (!stopping_) {
                            driver_->command(seats_[message.seat]->tenant.info().role,
                                             command.what);
                          }
                          answered_.push_back(std::move(command.done));
                        },
                        [&](const StatsSeen& seen) {
                          driver_->note_stats(seats_[message.seat]->tenant.info().role,
                                              seen.stats);
                        },
                        [&](const UseBudget& use) {
                          slot.set_budget(use.budget);
                          driver_->set_profile(seats_[message.seat]->tenant.info().role,
                                               use.profile);
                        },
                        [&](GuardStopped& stopped) {
                          driver_->note_guard_stop(seats_[message.seat]->tenant.info().role,
                                                   std::move(stopped.how));
                        },
                        [&](const Stop& stop) {
                          stopping_ = true;
                          driver_->close(stop.engines_outlive);
                        }},
             message.body);
}

Result<Model*> Supervisor::resolve(std::string_view name) {
  for (const auto& seat : seats_) {
    const ModelInfo& info = seat->tenant.info();
    if (name == info.name || name == role_name(info.role) ||
        std::find(info.aliases.begin(), info.aliases.end(), name) != info.aliases.end()) {
      return &seat->tenant;
    }
  }
  if (name.empty()) return &seats_[0]->tenant;
  std::string known;
  for (const auto& seat : seats_) {
    known += (known.empty() ? "" : ", ") + seat->tenant.info().name;
  }
  std::string quoted;
  append_json_string(quoted, name.substr(0, 80));
  return make_error(Errc::not_found, "no model " + quoted + ": there are " + known, "model");
}

std::vector<Model*> Supervisor::all() {
  std::vector<Model*> out;
  for (const auto& seat : seats_) out.push_back(&seat->tenant);
  return out;
}

Tenant* Supervisor::tenant(Role role) {
  for (const auto& seat : seats_) {
    if (seat->tenant.info().role == role) return &seat->tenant;
  }
  return nullptr;
}

std::vector<Tenant*> Supervisor::tenants() {
  std::vector<Tenant*> out;
  for (const auto& seat : seats_) out.push_back(&seat->tenant);
  return out;
}

}  // namespace tandem::service
