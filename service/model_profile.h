// How chats of a model are treated, found out when its engine is ready: the family comes from the
// configuration, else from the model file; the probe asks the engine's template what it really
// accepts, and tiny requests show what is really answered; the configuration has the last word. Every fact keeps its source, for `tandemctl model
// show`. Pure but for the questions it asks; any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/protocol.h"
#include "base/result.h"
#include "policies/template_probe.h"
#include "service/config.h"
#include "service/generation.h"

namespace tandem::service {

struct FoundProfile {
  ChatRules rules;
  std::vector<policies::ProfileFact> facts;  // one line each, every field of the profile
};

struct TrialAnswer {
  std::string content;
  std::string reasoning;
  int64_t tokens = 0;     // as the engine counted and timed them
  int64_t decode_us = 0;  // first token to last
};
using AskModel =
    std::function<Result<TrialAnswer>(const protocol::PrepareChat& chat, protocol::Submit submit)>;

// How the engine is asked.
struct ProfileQuestions {
  policies::RenderProbe render;
  AskModel answer;  // for the tiny requests of model_trial.h. Empty: they are not asked
};

// Without a template there is no chat, and nothing is asked. Errors: those of `render` about the
// plainest chat; such a model is not ready.
Result<FoundProfile> find_profile(const ModelConfig& model, const SanitizerConfig& sanitizer,
                                  const protocol::ModelFacts& facts,
                                  const ProfileQuestions& ask);

const char* fact_source_name(policies::FactSource source) noexcept;
// {"system": {"value": "leading", "source": "probe"}, ...}
Json profile_json(const std::vector<policies::ProfileFact>& facts);
// "family qwen3.5 (model file), system leading (probe), ..."
std::string profile_line(const std::vector<policies::ProfileFact>& facts);

}  // namespace tandem::service
