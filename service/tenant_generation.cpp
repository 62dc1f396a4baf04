#include "service/tenant_generation.h"

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

bool is_token(const GenerationEvent& event) {
  const auto* body = std::get_if<protocol::Event>(&event.body);
  const auto* content = body == nullptr ? nullptr : std::get_if<protocol::ContentEvent>(&body->body);
  return content != nullptr && content->token != protocol::kNoToken;
}

int64_t service_us(const GenerationEvent& event) {
  const auto* body = std::get_if<protocol::Event>(&event.body);
  const auto* finish = body == nullptr ? nullptr : std::get_if<protocol::FinishEvent>(&body->body);
  return finish == nullptr ? 0 : finish->timing.prefill_us + finish->timing.decode_us;
}

}  // namespace

GenerationChannel::GenerationChannel(uint64_t first_id, size_t choices, EngineClient& client,
                                     AdmissionCount& admission, TokenPace& pace)
    : first_id_(first_id),
      client_(client),
      admission_(admission),
      pace_(pace),
      events_max_(choices * static_cast<size_t>(2 * kCreditEvents + kUncreditedEvents)),
      token_at_(choices),
      queue_(events_max_ + choices),
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
    const int64_t us = service_us(event);
    client_.close(request_id);
    if (!end(choice, us)) return true;
  } else if (!dropped && queue_.size() >= events_max_) {
    return false;  // the room left is for the terminals: a breach must not lose them, too
  }
  return dropped || queue_.try_push(std::move(event));
}

void GenerationChannel::note_token(size_t choice) {
  const SteadyTime now = std::chrono::steady_clock::now();
  SteadyTime& last = token_at_[choice];
  if (last != SteadyTime{}) {
    pace_.add(now, std::chrono::duration_cast<std::chrono::microseconds>(now - last).count());
  }
  last = now;
}

bool GenerationChannel::end(size_t choice, int64_t service_us) {
  {
    MutexLock lock(mutex_);
    if (ended_[choice]) return false;
    ended_[choice] = true;
  }
  admission_.end(service_us);
  return true;
}

void GenerationChannel::abandon() {
  MutexLock lock(mutex_);
  abandoned_ = true;
}

void GenerationChannel::forget(uint64_t request_id) {
  client_.close(request_id);
  (void)end(static_cast<size_t>(request_id - first_id_), 0);
}

TenantGeneration::TenantGeneration(EngineClient& client, std::shared_ptr<GenerationChannel> channel,
                                   uint64_t first_id, size_t choices)
    : client_(client), channel_(std::move(channel)), first_id_(first_id), taken_(choices, 0) {}

TenantGeneration::~TenantGeneration() {
  if (done()) return;
  channel_->abandon();
  cancel();
}

std::optional<GenerationEvent> TenantGeneration::next_event(SteadyTime deadline) {
  if (done()) return std::nullopt;
  auto event = channel_->pop(deadline);
  if (!event.has_value()) return std::nullopt;
  int64_t& taken = taken_[event->choice];
  CHECK_MSG(taken >= 0, "an event after the terminal one");
  if (event->terminal()) {
    taken = -1;
    ++ended_;
    return event;
  }
  const auto* content =
      std::get_if<protocol::ContentEvent>(&std::get<protocol::Event>(event->body).body);
  const bool credited = content != nullptr && content->token != protocol::kNoToken;
  if (credited && ++taken >= kCreditEvents / 2) {
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
    if (taken_[i] >= 0) (void)client_.send(FrameType::cancel, first_id_ + i, Json());
  }
}

}  // namespace tandem::service
