// tandemctl canary: what the default model loses to its neighbour, measured (service/canary.h).
#pragma once

#include <string>

#include "base/json.h"
#include "service/ctl/context.h"

namespace tandem::service::ctl {

int run_canary_show(const Context& context);
// Waits until it is done, unless --no-wait.
int run_canary_run(const Context& context);

std::string canary_text(const Json& answer);

}  // namespace tandem::service::ctl
