// tandemctl incidents: what went wrong on this box, newest first, and what to do about it. The text is
// made here from tandemd's answer, apart from printing, so that tests can read it.
#pragma once

#include <string>

#include "base/json.h"
#include "service/ctl/context.h"

namespace tandem::service::ctl {

int run_incidents(const Context& context);
int run_incidents_ack(const Context& context);

// `now_unix_s`: for the ages.
std::string incidents_text(const Json& answer, int64_t now_unix_s);
// With --exit-code: of the worst that is open and not acknowledged.
int incidents_exit_code(const Json& answer);

}  // namespace tandem::service::ctl
