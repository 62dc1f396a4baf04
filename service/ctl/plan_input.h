// What `tandemctl plan` plans: the flags, over the configuration where one is asked for, over the
// defaults of the configuration. Reads /proc/meminfo for what the flags do not say of the host.
// Errors (invalid_argument) name the flag; io for the configuration and the host.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "memory_budget/plan_box.h"
#include "service/ctl/context.h"

namespace tandem::service::ctl {

struct PlanModelRequest {
  budget::Role role = budget::Role::default_model;
  std::string file;
  budget::ModelSettings settings;
  int64_t threads = 0;
};

struct PlanRequest {
  std::string engine;  // the program that describes files
  std::vector<PlanModelRequest> models;
  budget::HostFacts host;
};

Result<PlanRequest> read_plan_request(const Context& context);

std::span<const FlagSpec> plan_flags();

// "24GiB", "121.7GiB" (rounded up to a byte) or plain bytes. Error: invalid_argument, how to write it.
Result<int64_t> parse_plan_size(std::string_view text);

}  // namespace tandem::service::ctl
