// On what terms a request waits, from its headers, its key and the configuration:
//   x-tandem-priority: interactive | batch
//   x-tandem-deadline-ms: 1 .. 86400000, from the end of the request's body to the end of the answer
// Pure; any thread. A header that says nothing sensible is a 400 that names it.
#pragma once

#include <cstdint>
#include <variant>

#include "service/generation.h"
#include "service/http/exchange.h"
#include "service/http/server.h"
#include "service/wire/error_map.h"

namespace tandem::service {

struct RequestTerms {
  SubmitTerms submit;
  int64_t deadline_ms = 0;  // of the whole answer, as it holds
  SteadyTime deadline{};    // the same as a time; also in `submit`
};

std::variant<RequestTerms, wire::ApiError> read_terms(const HttpOptions& options, const Exchange& exchange);

// "position=3, wait_ms=1200"; of a request that did not wait both are 0.
std::string queue_header(const QueuePlace& place);

}  // namespace tandem::service
