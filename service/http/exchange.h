// What a handler sees of one request, and what it returns: plain values, nothing of the HTTP
// library. An Exchange is a view of the request that a worker holds: a stream may keep a copy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "service/http/front.h"
#include "service/wire/error_map.h"

namespace tandem::service {

// Where a streamed answer is written to. False: the client is gone or takes nothing; stop.
using StreamWriter = std::function<bool(std::string_view)>;

// A streamed body, pulled by the worker once the status line is out.
class StreamSource {
 public:
  enum class Next : uint8_t {
    more,
    done,   // complete: the final chunk is sent
    abort,  // the connection is closed without it
  };
  virtual ~StreamSource() = default;
  // `raw`: the rest of what Exchange::send_part() could not send.
  virtual Next next(const StreamWriter& write, const StreamWriter& raw) = 0;
};

struct Answer {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  std::unique_ptr<StreamSource> stream;  // when set, `body` is not used
  bool abandoned = false;                // the client left: write nothing
  std::optional<wire::ApiError> error;   // what `body` says, for shape_answer
};

Answer json_answer(const Json& body);
Answer error_answer(const wire::ApiError& error);

// The last step before an answer is written: what depends on the interface that `path` belongs to.
// On the Anthropic interface an error's body takes that form, and the id has a second name.
void shape_answer(Answer& answer, std::string_view path, std::string_view request_id);

// A client's own id for its request, echoed when it is harmless; else empty.
std::string_view client_request_id(const RequestHead& head);

// A whole response as text, for answers that the front writes itself (same headers as a worker's).
std::string render_answer(const Answer& answer, const std::string& request_id, bool head_only,
                          bool keep_alive, int64_t idle_ms);

class Exchange {
 public:
  explicit Exchange(ReadyRequest& request) : request_(&request) {}

  [[nodiscard]] const RequestHead& head() const { return request_->head; }
  [[nodiscard]] const std::string& body() const { return request_->body; }
  [[nodiscard]] const Admission& admission() const { return request_->admission; }
  [[nodiscard]] SteadyTime complete_at() const { return request_->complete_at; }

  // The peer closed or reset its connection, or only its sending half (which counts the same: no
  // client of this interface half-closes and then waits).
  [[nodiscard]] bool peer_gone() const;
  // One part of a streamed body as it goes over the wire.
  [[nodiscard]] std::string frame_part(std::string_view text) const;
  // Sends what the socket takes at once of framed bytes; returns how many, none: the client is gone. Only while
  // no writer of the stream is in use.
  [[nodiscard]] std::optional<size_t> send_part(std::string_view framed) const;
  // The body is parsed: its bytes and its share of the buffer limit are given back.
  void free_body() const;

 private:
  ReadyRequest* request_;
};

}  // namespace tandem::service
