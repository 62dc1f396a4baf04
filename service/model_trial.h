// The tiny requests that a model answers before it is ready: a late system message, a system message
// alone, tools, a round of calls in the history, thinking switched off, a title, an effort word. Each
// goes through the rules with the facts that the template gave (policies/template_probe.h), as a
// client's would. What fails is switched off in the profile, so that the rules work around it, and is
// told among its facts; what the configuration says stays. A model that is too slow to be asked is left
// as it is.
//
// Pure but for the questions it asks; any thread.
#pragma once

#include <vector>

#include "policies/profile.h"
#include "policies/sanitize/sanitize.h"
#include "policies/template_probe.h"
#include "service/config.h"
#include "service/model_profile.h"

namespace tandem::service {

// Changes `profile`; replaces and adds facts. `ask` fails with cancelled, unavailable or exhausted where
// there is no answer to be had now; every other error says that the model cannot do it.
void try_model(const ModelConfig& configured, const policies::SanitizeSettings& settings,
               const AskModel& ask, policies::ModelProfile& profile,
               std::vector<policies::ProfileFact>& facts);

}  // namespace tandem::service
