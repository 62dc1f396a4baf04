// IncidentSink: where whoever notices that something is wrong says so. An incident is open from its
// raise until its clear; there is one of a kind and model at a time, and raising it again counts a
// repeat. Raise when the condition begins or when there is news about it, not at every look; clear as
// often as you like. Both return at once, from any thread, whatever state the store is in
// (service/incident_keeper.h implements it).
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "service/incident_kinds.h"

namespace tandem::service {

class IncidentSink {
 public:
  virtual ~IncidentSink() = default;

  // `model`: the configured name, empty for the whole box. `text`: what happened, with the numbers and
  // without text of requests, lower case, no full stop. `numbers`: the same for programs, an object.
  virtual void raise(IncidentKind kind, std::string_view model, std::string text,
                     Json numbers = Json::object()) = 0;
  virtual void clear(IncidentKind kind, std::string_view model) = 0;
};

}  // namespace tandem::service
