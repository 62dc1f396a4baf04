// The memory plan of this box as it is: what is configured, what each engine holds now, what the host
// has available. tandemd plans with it before it changes a budget; tandemctl asks for the same facts
// and plans them with the same code, so both come to the same verdict.
//
// Blocking (starts tandem-engine to describe the files, reads /proc); any thread. Errors: those of
// ask_engine and of the shape, with the file before them; io when /proc cannot be read; corrupt for
// facts that are not of the form.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "memory_budget/plan_box.h"
#include "service/config.h"
#include "service/describe_engine.h"

namespace tandem::service {

// Of an engine of others; bytes are 0 where nothing is configured.
struct ForeignTerms {
  std::string engine;
  std::string repository;
  int64_t weights_bytes = 0;
  int64_t workspace_bytes = 0;
  int64_t load_peak_bytes = 0;
  int64_t cache_permille = 1000;  // of 16 bits a value
};

struct BoxModelFacts {
  budget::Role role = budget::Role::default_model;
  std::string name;
  std::string file;
  std::string state;  // for people
  budget::ModelSettings settings;
  int64_t threads = 0;
  // Of the pool, by the model's processes: anonymous and shared memory. Mapped weights are no part of it,
  // since MemAvailable counts them as available still.
  int64_t held_bytes = 0;
  std::optional<ForeignTerms> foreign = std::nullopt;
};

struct BoxFacts {
  std::string engine;  // the program that describes files
  budget::HostFacts host;
  std::vector<BoxModelFacts> models;  // default first
};

using Describer = std::function<Result<Json>(const DescribeQuestion&)>;

BoxModelFacts model_facts(budget::Role role, const ModelConfig& config);

// What its engine needs memory for is on this box.
bool is_planned(const ModelConfig& config);

// Of this host, now: total, MemAvailable (swap counts as nothing) and the performance floor, as
// configured or of a host of this size. Error: invalid_argument (floors out of order).
Result<budget::HostFacts> read_host_facts(const MemoryConfig& config = {});
// Of a process and its descendants; 0 when there is none (any more).
int64_t held_bytes(int64_t pid);

// Every model is described, then all of them are one input of plan_box.
Result<budget::BoxInput> describe_box(const BoxFacts& facts, const Describer& describe);

Json box_facts_json(const BoxFacts& facts);
Result<BoxFacts> read_box_facts(const Json& json);

}  // namespace tandem::service
