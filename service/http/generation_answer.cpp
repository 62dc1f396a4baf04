#include "service/http/generation_answer.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

namespace tandem::service {
namespace {

using std::chrono::milliseconds;

constexpr int kEventsPerWrite = 32;
// While tokens flow past the worker it only wakes to see whether they still do.
constexpr int kWatchedPolls = 10;
constexpr const char* kClientGone = "client_disconnected";

wire::ApiError shutting_down() {
  wire::ApiError error =
      wire::api_error(503, "shutting_down", "the service stopped before the answer was complete");
  error.never_retry = true;
  return error;
}

wire::ApiError out_of_time(const GenerationParts& parts) {
  std::string message =
      "the answer was not complete after " + std::to_string(parts.terms.deadline_ms) + " ms";
  const int64_t position = parts.run->place().position;
  if (position > 0) message += "; it came to the queue as number " + std::to_string(position);
  return wire::api_error(504, "deadline_exceeded", std::move(message));
}

// What every waiting loop asks between two events. Shared by both kinds of answer.
struct Watch {
  const HandlerContext& context;
  const GenerationParts& parts;

  [[nodiscard]] std::optional<wire::ApiError> must_end() const {
    if (context.stopping.load(std::memory_order_relaxed)) return shutting_down();
    if (std::chrono::steady_clock::now() >= parts.terms.deadline) return out_of_time(parts);
    return std::nullopt;
  }
  // `watched`: the client's socket is looked at with each event that a tap takes, too.
  [[nodiscard]] SteadyTime next_look(bool watched = false) const {
    const auto every = milliseconds(context.options.peer_poll_ms * (watched ? kWatchedPolls : 1));
    return std::min(std::chrono::steady_clock::now() + every, parts.terms.deadline);
  }
};

void note_event(RequestTracker& tracker, const protocol::Event& event) {
  const auto* content = std::get_if<protocol::ContentEvent>(&event.body);
  if (content != nullptr && content->token >= 0) tracker.token();
  if (const auto* finish = std::get_if<protocol::FinishEvent>(&event.body)) {
    tracker.set_timing(finish->timing);
  }
}

// A choice that ended as cancelled without our asking was ended by the engine.
std::optional<wire::ApiError> failure_of(const GenerationParts& parts,
                                         const GenerationEvent& event) {
  if (const auto* error = std::get_if<Error>(&event.body)) {
    if (const auto refusal = parts.run->refusal()) return refusal;
    return wire::map_error(*error, parts.model.retry_after_s());
  }
  const auto& body = std::get<protocol::Event>(event.body).body;
  const auto* finish = std::get_if<protocol::FinishEvent>(&body);
  if (finish != nullptr && finish->reason == protocol::FinishReason::cancelled) {
    wire::ApiError error =
        wire::api_error(503, "generation_cancelled", "the engine ended the generation");
    error.retry_after_s = 1;
    return error;
  }
  return std::nullopt;
}

// Before each end of a choice: the writer puts it where its interface has the last one.
void explain(GenerationParts& parts) {
  if (parts.receipt == nullptr || !parts.receipt->explain()) return;
  parts.writer->explain(parts.receipt->json());
}

void add_notes(Answer& answer, const GenerationParts& parts) {
  answer.headers.emplace_back("x-tandem-queue", queue_header(parts.run->place()));
  if (parts.receipt == nullptr) return;
  std::string header = parts.receipt->header();
  if (!header.empty()) answer.headers.emplace_back("x-tandem-receipt", std::move(header));
}

Answer abandoned(GenerationParts& parts) {
  parts.run->cancel();
  parts.tracker->cancelled(kClientGone);
  Answer answer;
  answer.abandoned = true;
  return answer;
}

// What both kinds of tap share: the client is looked at as often as a waiting worker would.
class WatchingTap : public EventTap {
 public:
  // Of the last wait; the worker asks, once it is awake.
  [[nodiscard]] bool took_events() { return std::exchange(took_events_, false); }

 protected:
  WatchingTap(const HandlerContext& context, const Exchange& exchange) : context_(context), exchange_(exchange) {}

  // False: the worker must look after it.
  bool may_take(SteadyTime now) {
    took_events_ = true;
    if (context_.stopping.load(std::memory_order_relaxed)) return false;
    if (now < next_look_) return true;
    next_look_ = now + milliseconds(context_.options.peer_poll_ms);
    return !exchange_.peer_gone();
  }

  const HandlerContext context_;
  const Exchange exchange_;

 private:
  SteadyTime next_look_{};
  bool took_events_ = false;
};

class TokenStream final : public StreamSource, private WatchingTap {
 public:
  TokenStream(const HandlerContext& context, const Exchange& exchange, GenerationParts parts,
              std::optional<GenerationEvent> first)
      : WatchingTap(context, exchange),
        watch_{context_, parts_},
        parts_(std::move(parts)),
        first_(std::move(first)),
        last_write_(std::chrono::steady_clock::now()) {}

  Next next(const StreamWriter& write, const StreamWriter& raw) override {
    if (exchange_.peer_gone()) return gone();
    if (const auto error = watch_.must_end()) return fail(write, *error);
    const bool flows = took_events();
    auto event = first_.has_value() ? std::exchange(first_, std::nullopt)
                                    : parts_.run->next_event(watch_.next_look(flows), *this);
    if (broken_ || (!unsent_.empty() && !raw(std::exchange(unsent_, {})))) return gone();
    if (!event.has_value()) return wait(write);
    std::string text;
    for (int i = 0; event.has_value(); ++i) {
      if (const auto error = failure_of(parts_, *event)) {
        if (!text.empty() && !write(text)) return gone();
        return fail(write, *error);
      }
      const auto& body = std::get<protocol::Event>(event->body);
      note_event(*parts_.tracker, body);
      if (body.terminal()) explain(parts_);
      text += parts_.writer->chunk(event->choice, body);
      if (i >= kEventsPerWrite || parts_.run->done()) break;
      event = parts_.run->next_event(SteadyTime{});
    }
    const bool done = parts_.run->done();
    if (done) text += parts_.writer->tail();
    if (!put(write, text)) return gone();
    if (!done) return Next::more;
    parts_.tracker->set_usage(parts_.writer->usage());
    parts_.tracker->finished(parts_.writer->finish_reason());
    return Next::done;
  }

 private:
  // A token on its way past the worker.
  Taken take(const GenerationEvent& event) override {
    const SteadyTime now = std::chrono::steady_clock::now();
    if (!may_take(now)) return Taken::no;
    const auto& body = std::get<protocol::Event>(event.body);
    note_event(*parts_.tracker, body);
    const std::string text = parts_.writer->chunk(event.choice, body);
    if (text.empty()) return Taken::yes;
    last_write_ = now;
    std::string framed = exchange_.frame_part(text);
    const auto sent = exchange_.send_part(framed);
    if (sent == framed.size()) return Taken::yes;
    broken_ = !sent.has_value();
    if (!broken_) unsent_ = framed.substr(*sent);
    return Taken::yes_wake;
  }

  bool put(const StreamWriter& write, std::string_view text) {
    last_write_ = std::chrono::steady_clock::now();
    return text.empty() || write(text);
  }

  Next wait(const StreamWriter& write) {
    const auto silent = std::chrono::steady_clock::now() - last_write_;
    if (silent < milliseconds(context_.options.ping_ms)) return Next::more;
    return put(write, parts_.writer->ping()) ? Next::more : gone();
  }

  Next gone() {
    parts_.run->cancel();
    parts_.tracker->set_usage(parts_.writer->usage());
    parts_.tracker->cancelled(kClientGone);
    return Next::abort;
  }

  // A stream that ended cleanly would be taken for success: an error event, and no final chunk.
  Next fail(const StreamWriter& write, const wire::ApiError& error) {
    parts_.run->cancel();
    parts_.tracker->set_usage(parts_.writer->usage());
    parts_.tracker->error(error, 200);
    // Whether the client still takes it changes nothing any more.
    static_cast<void>(write(parts_.writer->failure(error)));
    return Next::abort;
  }

  const Watch watch_;
  GenerationParts parts_;
  std::optional<GenerationEvent> first_;
  SteadyTime last_write_;
  std::string unsent_;   // what the client's socket did not take from take()
  bool broken_ = false;  // take() found the client gone
};

// Of a whole answer: tokens are put by as they come, the worker wakes for the end.
class CollectingTap final : public WatchingTap {
 public:
  CollectingTap(const HandlerContext& context, const Exchange& exchange, GenerationParts& parts)
      : WatchingTap(context, exchange), parts_(parts) {}
  Taken take(const GenerationEvent& event) override {
    if (!may_take(std::chrono::steady_clock::now())) return Taken::no;
    const auto& body = std::get<protocol::Event>(event.body);
    note_event(*parts_.tracker, body);
    parts_.writer->collect(event.choice, body);
    return Taken::yes;
  }

 private:
  GenerationParts& parts_;
};

}  // namespace

std::unique_ptr<StreamSlot> StreamSlot::take(const HandlerContext& context) {
  auto slot = std::make_unique<StreamSlot>(context.active_streams);
  const int64_t active = context.active_streams.load(std::memory_order_relaxed);
  return active > static_cast<int64_t>(context.options.streams_max) ? nullptr : std::move(slot);
}

StreamSlot::StreamSlot(std::atomic<int64_t>& active) : active_(active) {
  active_.fetch_add(1, std::memory_order_relaxed);
}

StreamSlot::~StreamSlot() { active_.fetch_sub(1, std::memory_order_relaxed); }

Answer whole_answer(const HandlerContext& context, const Exchange& exchange,
                    GenerationParts parts) {
  const Watch watch{context, parts};
  CollectingTap tap(context, exchange, parts);
  while (!parts.run->done()) {
    if (exchange.peer_gone()) return abandoned(parts);
    if (const auto error = watch.must_end()) return refuse(*parts.tracker, *error);
    const auto event = parts.run->next_event(watch.next_look(tap.took_events()), tap);
    if (!event.has_value()) continue;
    if (const auto error = failure_of(parts, *event)) {
      parts.run->cancel();
      return refuse(*parts.tracker, *error);
    }
    const auto& body = std::get<protocol::Event>(event->body);
    note_event(*parts.tracker, body);
    parts.writer->collect(event->choice, body);
  }
  parts.tracker->set_usage(parts.writer->usage());
  parts.tracker->finished(parts.writer->finish_reason());
  Json body = parts.writer->body();
  if (parts.receipt != nullptr && parts.receipt->explain()) body.set("tandem", parts.receipt->json());
  Answer answer = json_answer(body);
  add_notes(answer, parts);
  return answer;
}

Answer stream_answer(const HandlerContext& context, const Exchange& exchange,
                     GenerationParts parts) {
  const Watch watch{context, parts};
  const SteadyTime commit_at =
      std::chrono::steady_clock::now() + milliseconds(context.options.first_event_ms);
  std::optional<GenerationEvent> first;
  while (!first.has_value() && std::chrono::steady_clock::now() < commit_at) {
    if (exchange.peer_gone()) return abandoned(parts);
    if (const auto error = watch.must_end()) return refuse(*parts.tracker, *error);
    first = parts.run->next_event(watch.next_look());
  }
  if (first.has_value()) {
    if (const auto error = failure_of(parts, *first)) {
      parts.run->cancel();
      return refuse(*parts.tracker, *error);
    }
  }
  Answer answer;
  answer.content_type = "text/event-stream";
  add_notes(answer, parts);
  answer.stream =
      std::make_unique<TokenStream>(context, exchange, std::move(parts), std::move(first));
  return answer;
}

}  // namespace tandem::service
