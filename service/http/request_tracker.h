// RequestTracker: makes sure that a request that reached a handler is recorded exactly once,
// whatever its end. Owned by the handler, then by the stream if there is one; its destructor
// records what nobody finished as cancelled (the answer was never pulled to its end).
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/protocol.h"
#include "service/http/exchange.h"
#include "service/http/server.h"
#include "service/request_record.h"
#include "service/wire/error_map.h"

namespace tandem::service {

class RequestTracker {
 public:
  RequestTracker(const HttpServices& services, const Exchange& exchange, const char* route,
                 std::string id);
  RequestTracker(const RequestTracker&) = delete;
  RequestTracker& operator=(const RequestTracker&) = delete;
  ~RequestTracker();

  void set_model(const std::string& model) { record_.model = model; }
  void set_stream(bool stream) { record_.stream = stream; }
  void set_usage(const protocol::Usage& usage);
  void set_timing(const protocol::Timing& timing);
  // A token of some choice arrived: first-token and inter-token times.
  void token();

  void finished(std::string reason);
  void cancelled(std::string reason);
  // Rejected or failed, by the status. `sent_status` is what the client saw (200 inside a stream).
  void error(const wire::ApiError& error, int64_t sent_status);

 private:
  void close(Outcome outcome, int64_t status, std::string reason);

  const HttpServices& services_;
  RequestRecord record_;
  SteadyTime complete_at_;
  SteadyTime last_token_at_{};
  Histogram* gaps_ = nullptr;
  bool closed_ = false;
};

// Refuses with the tracker's outcome.
Answer refuse(RequestTracker& tracker, const wire::ApiError& error);

}  // namespace tandem::service
