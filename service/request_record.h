// RequestRecord: what is remembered of one finished request. It holds no prompt or answer text. The
// HTTP layer fills one per request, whatever its end, and hands it to a RecordSink exactly once; the
// sink updates the metrics and queues the row for the store. record() never blocks and may be called
// from any thread: when the store is behind, the row is dropped and counted.
#pragma once

#include <cstdint>
#include <string>

namespace tandem::service {

enum class Outcome : uint8_t {
  finished,   // the answer was delivered
  cancelled,  // the client went away, or a deadline passed
  rejected,   // refused before an engine saw it: 4xx, or 429/503
  failed,     // 5xx, or an error event inside the stream
};
const char* outcome_name(Outcome outcome) noexcept;

struct RequestRecord {
  std::string id;       // as the client saw it, "chatcmpl-..."
  std::string route;    // a constant of ours, "/v1/chat/completions"; never the raw path
  std::string model;    // configured name; empty if the request named none of ours
  std::string key_id;   // public part of the key; empty without one
  int64_t created_unix_s = 0;
  int64_t queue_us = 0;        // the engine's Timing
  int64_t prefill_us = 0;
  int64_t decode_us = 0;
  int64_t first_token_us = 0;  // request complete at the front to first event; 0: none came
  int64_t total_us = 0;        // request complete at the front to end of the answer
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t status = 0;  // HTTP status sent
  bool stream = false;
  Outcome outcome = Outcome::finished;
  std::string reason;  // finish reason ("stop", "length", ...) or error code; a constant of ours
};

class RecordSink {
 public:
  virtual ~RecordSink() = default;
  virtual void record(RequestRecord record) = 0;
};

}  // namespace tandem::service
