// tandemctl top: how the two models share the box just now. The figures are made of two of tandemd's
// answers, and the text of the figures, apart from asking and printing, so that tests can read them.
#pragma once

#include <string>

#include "base/json.h"
#include "service/ctl/context.h"

namespace tandem::service::ctl {

int run_top(const Context& context);

// From two answers to {"command": "status", "stats": true}, `seconds` apart: rates and shares of the time
// between them; what a model did not tell is null.
Json top_figures(const Json& before, const Json& now, double seconds);
// Lines that end with \n.
std::string top_text(const Json& figures);

}  // namespace tandem::service::ctl
