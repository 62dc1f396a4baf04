// What a chat template really accepts: a handful of tiny chats is rendered, and the answers become
// the facts of a profile. Rendering is the caller's (our engine's template, or another engine's
// endpoint); nothing here reads a template, so a fact is what happened and not what a text looked
// like.
//
// A fact is replaced only where the probe is sure; the rest of the starting profile stays, with its
// own source. A template that cannot render the plainest chat is an error: such a model is not
// ready.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "policies/profile.h"

namespace tandem::policies {

struct ProbeChat {
  Json messages = Json::array();
  Json tools;                       // null: none
  Json variables = Json::object();  // enable_thinking, reasoning_effort
};
// The prompt, with the opening of the assistant's turn at its end.
using RenderProbe = std::function<Result<std::string>(const ProbeChat& chat)>;

// For people: one line a fact, such as {"system", "leading", probe}.
struct ProfileFact {
  std::string name;
  std::string value;
  FactSource source = FactSource::family_table;
};

struct ProbedProfile {
  ModelProfile profile;
  std::vector<ProfileFact> facts;
};

Result<ProbedProfile> probe_template(ModelProfile start, const RenderProbe& render);

}  // namespace tandem::policies
