#include "service/http/request_terms.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <string>

namespace tandem::service {
namespace {

constexpr int64_t kDeadlineMaxMs = 86'400'000;
constexpr const char* kPriority = "x-tandem-priority";
constexpr const char* kDeadline = "x-tandem-deadline-ms";

wire::ApiError bad_header(const char* name, std::string message) {
  wire::ApiError error = wire::api_error(400, "invalid_header", std::move(message), name);
  error.never_retry = true;
  return error;
}

// The value goes into a message: what is printable and short of it.
std::string quoted(std::string_view value) {
  std::string text = "\"";
  for (const char c : value.substr(0, 40)) text += c >= ' ' && c < '\x7f' && c != '"' ? c : '?';
  return text + '"';
}

std::optional<int64_t> parse_ms(std::string_view text) {
  int64_t ms = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), ms);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return ms >= 1 && ms <= kDeadlineMaxMs ? std::optional(ms) : std::nullopt;
}

}  // namespace

std::variant<RequestTerms, wire::ApiError> read_terms(const HttpOptions& options, const Exchange& exchange) {
  RequestTerms terms;
  terms.submit.key_id = exchange.admission().key_id;
  const auto weight = options.queue.key_weights.find(terms.submit.key_id);
  if (weight != options.queue.key_weights.end()) terms.submit.weight = weight->second;
  if (options.queue.batch_keys.contains(terms.submit.key_id)) {
    terms.submit.queue_class = policies::QueueClass::batch;
  }
  if (const std::string_view value = exchange.head().header(kPriority); !value.empty()) {
    const auto asked = policies::parse_queue_class(value);
    if (!asked.has_value()) {
      return bad_header(kPriority, std::string(kPriority) + " is " + quoted(value) +
                                       ", it must be interactive or batch");
    }
    terms.submit.queue_class = *asked;
  }
  terms.deadline_ms = options.request_deadline_ms;
  if (options.queue.deadline_ms > 0) terms.deadline_ms = std::min(terms.deadline_ms, options.queue.deadline_ms);
  if (const std::string_view value = exchange.head().header(kDeadline); !value.empty()) {
    const auto asked = parse_ms(value);
    if (!asked.has_value()) {
      return bad_header(kDeadline, std::string(kDeadline) + " is " + quoted(value) +
                                       ", it must be a whole number from 1 to " +
                                       std::to_string(kDeadlineMaxMs));
    }
    terms.deadline_ms = std::min(options.request_deadline_ms, *asked);
  }
  terms.deadline = exchange.complete_at() + std::chrono::milliseconds(terms.deadline_ms);
  terms.submit.deadline = terms.deadline;
  return terms;
}

std::string queue_header(const QueuePlace& place) {
  return "position=" + std::to_string(place.position) + ", wait_ms=" + std::to_string(place.wait_ms);
}

}  // namespace tandem::service
