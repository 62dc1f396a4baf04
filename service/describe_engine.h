// Asks tandem-engine what a model file says of itself: `tandem-engine --describe FILE`, started with
// an argument vector, its answer bounded in size and time. Neither tandemd nor tandemctl reads a model file.
// Blocking; any thread. Errors: io (the program cannot be started), unavailable (it hangs or dies),
// corrupt (it prints no JSON object), or the engine's own error about the file.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace tandem::service {

struct DescribeQuestion {
  std::string engine;  // the program
  std::string file;
  int64_t slots = 4;
  int64_t context_tokens = 8192;
  int64_t batch_tokens = 512;
  int64_t threads = 0;
  // A file on a slow disk, its vocabulary read.
  std::chrono::milliseconds answer_limit = std::chrono::seconds(60);
};

Result<Json> ask_engine(const DescribeQuestion& question);

}  // namespace tandem::service
