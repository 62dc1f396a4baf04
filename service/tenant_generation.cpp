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

bool is_token(const GenerationEvent& event) {
  const auto* body = std::get_if<protocol::Event>(&event.body);
  const auto* content = body == nullptr ? nullptr : std::get_if<protocol::ContentEvent>(&body->body);
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
      items_(events_max_ + 2 * choices),  // a turn and a terminal each
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
    if (!end(event)) return true;
  } else if (!dropped && items_.size() >= events_max_) {
    return false;  // the room left is for the terminals: a breach must not lose them, too
  } else if (is_token(event)) {
    queue_.charge(request_id, 1);
  }
  return dropped || items_.try_push(Item(std::move(event)));
}

void GenerationChannel::note_token(size_t choice) {
  const SteadyTime now = std::chrono::steady_clock::now();
  SteadyTime& last = token_at_[choice];
  if (last != SteadyTime{}) {
    pace_.add(now, std::chrono::duration_cast<std::chrono::microseconds>(now - last).count());
  }
  last = now;
}

void GenerationChannel::on_turn(uint64_t ticket) { CHECK(items_.try_push(Item(Turn{ticket}))); }

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
  if (end(event)) CHECK(items_.try_push(Item(std::move(event))));
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

std::optional<GenerationEvent> TenantGeneration::next_event(SteadyTime deadline) {
  if (done()) return std::nullopt;
  std::optional<GenerationEvent> event;
  while (!event.has_value()) {
    auto item = channel_->pop(deadline);
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
