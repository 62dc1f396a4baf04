#include "service/tenant_generation.h"

#include <iterator>
#include <utility>

#include "base/check.h"
#include "policies/parse/parse.h"
#include "service/tenant.h"
#include "service/token_pace.h"

namespace tandem::service {
namespace {

static_assert(kUncreditedEvents > policies::kCallsMax, "every call of an answer has room");

// What a frame for an open submit means.
std::variant<protocol::Event, Error> decode(const Frame& frame) {
  auto json = parse_json(frame.payload, {.bytes_max = kFramePayloadBytesMax, .values_max = 8'000'000});
  if (!json.ok()) return std::move(json).error();
  if (frame.type == FrameType::event) {
    auto event = protocol::Event::from_json(*json);
    if (!event.ok()) return std::move(event).error();
    return std::move(*event);
  }
  if (frame.type == FrameType::failed) return protocol::error_from_json(*json);
  return make_error(Errc::corrupt, std::string("the engine answered a submit with ") +
                                       frame_type_name(frame.type));
}

protocol::FinishEvent* finish_of(GenerationEvent& event) {
  auto* body = std::get_if<protocol::Event>(&event.body);
  return body == nullptr ? nullptr : std::get_if<protocol::FinishEvent>(&body->body);
}

const protocol::ContentEvent* content_of(const GenerationEvent& event) {
  const auto* body = std::get_if<protocol::Event>(&event.body);
  return body == nullptr ? nullptr : std::get_if<protocol::ContentEvent>(&body->body);
}

bool is_content(const GenerationEvent& event) { return content_of(event) != nullptr; }

bool is_token(const GenerationEvent& event) {
  const auto* content = content_of(event);
  return content != nullptr && content->token != protocol::kNoToken;
}

}  // namespace

GenerationChannel::GenerationChannel(uint64_t first_id, size_t choices, EngineClient& client,
                                     ModelQueue& queue, TokenPace& pace)
    : first_id_(first_id),
      client_(client),
      queue_(queue),
      pace_(pace),
      events_max_(choices * static_cast<size_t>(2 * kCreditEvents + kUncreditedEvents)),
      token_at_(choices),
      ended_(choices) {}

bool GenerationChannel::deliver(uint64_t request_id, std::variant<Frame, Error> message) {
  const size_t choice = static_cast<size_t>(request_id - first_id_);
  GenerationEvent event{.choice = choice, .body = make_error(Errc::internal, "")};
  if (auto* error = std::get_if<Error>(&message)) {
    event.body = std::move(*error);
  } else {
    std::visit([&](auto&& body) { event.body = std::forward<decltype(body)>(body); },
               decode(std::get<Frame>(message)));
  }
  if (is_token(event)) note_token(choice);
  bool dropped = false;
  {
    MutexLock lock(mutex_);
    if (ended_[choice]) return true;
    dropped = abandoned_;
  }
  if (event.terminal()) {
    client_.close(request_id);
    if (end(event) && !dropped) push(Item(std::move(event)));
    return true;
  }
  if (is_token(event)) queue_.charge(request_id, 1);
  return dropped || give(std::move(event));
}

bool GenerationChannel::give(GenerationEvent event) {
  EventTap* tap = nullptr;
  {
    MutexLock lock(mutex_);
    if (is_content(event) && items_.empty() && !woken_) tap = tap_;
    if (tap == nullptr) {
      // Terminals and turns have room beyond: a breach of the credit must not lose them, too.
      if (items_.size() >= events_max_) return false;
      items_.emplace_back(std::move(event));
    } else {
      tapping_ = true;
    }
  }
  if (tap != nullptr) {
    const EventTap::Taken taken = tap->take(event);
    MutexLock lock(mutex_);
    tapping_ = false;
    if (taken == EventTap::Taken::no) items_.emplace_front(std::move(event));
    woken_ = taken == EventTap::Taken::yes_wake;
    // The owner of the tap may have wanted to leave meanwhile.
    if (taken == EventTap::Taken::yes && tap_ != nullptr) return true;
  }
  ready_.notify_one();
  return true;
}

void GenerationChannel::push(Item item) {
  {
    MutexLock lock(mutex_);
    items_.push_back(std::move(item));
  }
  ready_.notify_one();
}

std::optional<GenerationChannel::Item> GenerationChannel::pop(SteadyTime deadline, EventTap* tap) {
  MutexLock lock(mutex_);
  tap_ = tap;
  while (items_.empty() && !woken_) {
    if (ready_.wait_until(mutex_, deadline) == std::cv_status::timeout) break;
  }
  tap_ = nullptr;
  while (tapping_) ready_.wait(mutex_);
  woken_ = false;
  if (items_.empty()) return std::nullopt;
  Item item = std::move(items_.front());
  items_.pop_front();
  return item;
}

void GenerationChannel::note_token(size_t choice) {
  const SteadyTime now = std::chrono::steady_clock::now();
  SteadyTime& last = token_at_[choice];
  if (last != SteadyTime{}) {
    pace_.add(now, std::chrono::duration_cast<std::chrono::microseconds>(now - last).count());
  }
  last = now;
}

void GenerationChannel::on_turn(uint64_t ticket) { push(Item(Turn{ticket})); }

void GenerationChannel::on_refused(uint64_t ticket, Error error) {
  (void)deliver(ticket, std::move(error));
}

bool GenerationChannel::end(GenerationEvent& event) {
  {
    MutexLock lock(mutex_);
    if (ended_[event.choice]) return false;
    ended_[event.choice] = true;
  }
  auto* finish = finish_of(event);
  ModelQueue::Ended ended;
  if (finish != nullptr) {
    ended = {.cached_tokens = finish->usage.cached_tokens,
             .service_us = finish->timing.prefill_us + finish->timing.decode_us};
  }
  const auto waited = queue_.end(first_id_ + event.choice, ended);
  if (finish != nullptr) finish->timing.queue_us += waited.count();
  return true;
}

void GenerationChannel::abandon() {
  MutexLock lock(mutex_);
  abandoned_ = true;
}

void GenerationChannel::end_cancelled(uint64_t request_id) {
  client_.close(request_id);
  GenerationEvent event{.choice = static_cast<size_t>(request_id - first_id_),
                        .body = protocol::Event{protocol::FinishEvent{
                            .reason = protocol::FinishReason::cancelled}}};
  if (end(event)) push(Item(std::move(event)));
}

TenantGeneration::TenantGeneration(EngineClient& client, std::shared_ptr<GenerationChannel> channel,
                                   uint64_t first_id, std::vector<protocol::Submit> choices,
                                   QueuePlace place)
    : client_(client),
      channel_(std::move(channel)),
      first_id_(first_id),
      place_(place),
      unsent_(std::make_move_iterator(choices.begin()), std::make_move_iterator(choices.end())),
      taken_(choices.size(), 0) {}

// What never reached the engine gives its place back at once; the rest when the engine says so.
TenantGeneration::~TenantGeneration() {
  if (done()) return;
  channel_->abandon();
  if (!cancelled_) cancel();
}

Result<void> TenantGeneration::send(uint64_t ticket) {
  auto& submit = unsent_[static_cast<size_t>(ticket - first_id_)];
  if (!submit.has_value()) return {};
  const auto sent = client_.send(FrameType::submit, ticket, submit->to_json());
  if (sent.ok()) submit.reset();
  return sent;
}

void TenantGeneration::take_turn(uint64_t ticket) {
  if (taken_[static_cast<size_t>(ticket - first_id_)] < 0) return;
  if (auto sent = send(ticket); !sent.ok()) (void)channel_->deliver(ticket, std::move(sent).error());
}

// Counts what another tap takes; the token with which credit is due goes to the worker, which may wait for the
// engine's socket.
class TenantGeneration::CreditTap final : public EventTap {
 public:
  CreditTap(std::vector<int64_t>& taken, EventTap& inner) : taken_(taken), inner_(inner) {}
  Taken take(const GenerationEvent& event) override {
    int64_t& taken = taken_[event.choice];
    const bool counts = is_token(event);
    if (counts && taken + 1 >= kCreditEvents / 2) return Taken::no;
    const Taken result = inner_.take(event);
    if (counts && result != Taken::no) ++taken;
    return result;
  }

 private:
  std::vector<int64_t>& taken_;
  EventTap& inner_;
};

std::optional<GenerationEvent> TenantGeneration::next_event(SteadyTime deadline, EventTap& tap) {
  CreditTap counting(taken_, tap);
  return next(deadline, &counting);
}

std::optional<GenerationEvent> TenantGeneration::next(SteadyTime deadline, EventTap* tap) {
  if (done()) return std::nullopt;
  std::optional<GenerationEvent> event;
  while (!event.has_value()) {
    auto item = channel_->pop(deadline, tap);
    if (!item.has_value()) return std::nullopt;
    if (const auto* turn = std::get_if<GenerationChannel::Turn>(&*item)) {
      take_turn(turn->ticket);
    } else {
      event = std::get<GenerationEvent>(std::move(*item));
    }
  }
  int64_t& taken = taken_[event->choice];
  CHECK_MSG(taken >= 0, "an event after the terminal one");
  if (event->terminal()) {
    taken = -1;
    ++ended_;
    return event;
  }
  if (is_token(*event) && ++taken >= kCreditEvents / 2) {
    // A failed send means a lost connection: the terminal error is on its way.
    (void)client_.send(FrameType::credit, first_id_ + event->choice,
                       protocol::Credit{.events = taken}.to_json());
    taken = 0;
  }
  return event;
}

void TenantGeneration::cancel() {
  if (cancelled_) return;
  cancelled_ = true;
  for (size_t i = 0; i < taken_.size(); ++i) {
    if (taken_[i] < 0) continue;
    if (!unsent_[i].has_value()) {
      (void)client_.send(FrameType::cancel, first_id_ + i, Json());
      continue;
    }
    unsent_[i].reset();
    channel_->end_cancelled(first_id_ + i);
  }
}

}  // namespace tandem::service
