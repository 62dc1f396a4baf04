#include "service/http/answer_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tandem::service {
namespace {

// While several generations run there is no one channel to wait on.
constexpr std::chrono::milliseconds kSlice{5};

}  // namespace

AnswerRun::AnswerRun(Model& model, std::vector<Part> parts, SubmitTerms terms)
    : model_(model), terms_(std::move(terms)), parts_(std::move(parts)) {}

Result<void> AnswerRun::start() {
  while (next_part_ < parts_.size()) {
    Part& part = parts_[next_part_];
    auto generation = model_.submit(*part.prompt, part.choices, terms_);
    if (!generation.ok()) {
      const bool later = generation.error().code == Errc::exhausted && !running_.empty();
      if (later) return {};
      return std::move(generation).error();
    }
    if (next_part_ == 0) place_ = (*generation)->place();
    running_.push_back({std::move(generation).value(), next_choice_});
    next_choice_ += part.choices.size();
    ++next_part_;
  }
  return {};
}

Result<void> AnswerRun::start_more(Part part, size_t choice) {
  TRY_ASSIGN(auto generation, model_.submit(*part.prompt, part.choices, terms_));
  more_prompts_.push_back(std::move(part.prompt));
  running_.push_back({std::move(generation), choice});
  return {};
}

std::optional<GenerationEvent> AnswerRun::poll(Running& running, SteadyTime deadline, EventTap* tap) {
  const bool tapped = tap != nullptr && running.first_choice == 0;  // its numbers of choices are ours
  auto event = tapped ? running.generation->next_event(deadline, *tap) : running.generation->next_event(deadline);
  if (event.has_value()) event->choice += running.first_choice;
  return event;
}

void AnswerRun::refill() {
  std::erase_if(running_, [](const Running& running) { return running.generation->done(); });
  if (next_part_ == parts_.size() || failure_.has_value()) return;
  if (auto started = start(); !started.ok()) {
    failure_ = GenerationEvent{next_choice_, std::move(started).error()};
    next_part_ = parts_.size();
  }
}

std::optional<GenerationEvent> AnswerRun::next(SteadyTime deadline, EventTap* tap) {
  refill();
  if (failure_.has_value()) return std::exchange(failure_, std::nullopt);
  if (running_.size() == 1 && next_part_ == parts_.size()) return poll(running_.front(), deadline, tap);
  while (!running_.empty()) {
    const SteadyTime now = std::chrono::steady_clock::now();
    for (size_t i = 0; i < running_.size(); ++i) {
      turn_ = (turn_ + 1) % running_.size();
      if (auto event = poll(running_[turn_], now)) return event;
    }
    if (now >= deadline) return std::nullopt;
    if (auto event = poll(running_[turn_], std::min(deadline, now + kSlice))) return event;
    refill();
    if (failure_.has_value()) return std::exchange(failure_, std::nullopt);
  }
  return std::nullopt;
}

// Asks the generations: one that has just ended stays in running_ until the next refill.
bool AnswerRun::done() const {
  return next_part_ == parts_.size() && !failure_.has_value() &&
         std::all_of(running_.begin(), running_.end(),
                     [](const Running& running) { return running.generation->done(); });
}

void AnswerRun::cancel() {
  next_part_ = parts_.size();
  for (Running& running : running_) running.generation->cancel();
}

}  // namespace tandem::service
