// What every endpoint that generates does first, and the refusals they share. A request that was
// opened holds a place among the answers that may run, and a tracker that records its end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "base/json.h"
#include "service/generation.h"
#include "service/http/generation_answer.h"
#include "service/http/handlers.h"
#include "service/http/request_terms.h"
#include "service/http/request_tracker.h"
#include "service/wire/error_map.h"

namespace tandem::service {

struct OpenRequest {
  std::unique_ptr<RequestTracker> tracker;
  std::unique_ptr<StreamSlot> slot;
  RequestTerms terms;
  Json body;  // as the client sent it; any JSON value
};

// `route` is a constant, the same as in the table of routes; `id` that of the answer. The Answer is
// a refusal that is recorded already.
std::variant<OpenRequest, Answer> open_generation(const HandlerContext& context,
                                                  const Exchange& exchange, const char* route,
                                                  const std::string& id);

// Who asks, for models whose requests leave this machine.
struct Asker {
  std::string key_id;
  policies::QueueClass queue_class = policies::QueueClass::interactive;
};

// `name` as asked; empty: the default model. 403 where the model is not for the asker's requests.
std::variant<Model*, wire::ApiError> find_model(const HandlerContext& context, const std::string& name,
                                                const Asker& asker);

// The engine's error about a prompt in the words of the client's body: `field` is the field that
// holds the prompt, `index` its place where the field is a list of prompts.
wire::ApiError prompt_error(Error error, const Model& model, const char* field,
                            std::optional<size_t> index = std::nullopt);

// The cap is a cap, not a demand: it is cut to the room. Only a prompt that leaves none is refused.
std::variant<int64_t, wire::ApiError> tokens_allowed(const Model& model, const Prompt& prompt,
                                                     int64_t wanted, const char* field);

}  // namespace tandem::service
