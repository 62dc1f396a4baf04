// What `tandemctl plan` plans. Files that are named are planned as new ones, with the flags over the
// defaults (over the configuration where one is named too). Without files: what runs, asked of tandemd,
// with what the engines hold now; or, where none runs, the configuration on this host as it is now.
// Flags change the figures in every case; another host (--host-available) holds nothing yet.
// Errors (invalid_argument) name the flag; io for the configuration and the host.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "service/budget_plan.h"
#include "service/ctl/context.h"

namespace tandem::service::ctl {

struct PlanRequest {
  BoxFacts facts;
  bool running = false;  // asked of tandemd
};

Result<PlanRequest> read_plan_request(const Context& context);

std::span<const FlagSpec> plan_flags();

// "24GiB", "121.7GiB" (rounded up to a byte) or plain bytes. Error: invalid_argument, how to write it.
Result<int64_t> parse_plan_size(std::string_view text);

}  // namespace tandem::service::ctl
