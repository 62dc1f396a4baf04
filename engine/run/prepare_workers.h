// The threads that render templates, tokenise and compile constraints, so that a prompt of a megabyte
// delays neither the step loop nor the io thread. They take jobs from the queue until it is closed and answer to the io
// thread. Made after the model is loaded; joined by the destructor, which closes the queue.
#pragma once

#include <thread>
#include <vector>

#include "engine/kv/prefix_index.h"
#include "engine/run/messages.h"
#include "engine/run/text_side.h"

namespace tandem::engine {

struct PrepareContext {
  const TextSide& text;
  ConstraintCache& constraints;
  int64_t context_tokens = 0;  // longer prompts are refused here: they could never be submitted
  size_t answer_bytes_max = kFramePayloadBytesMax;  // a longer answer fails its request, no other
  const PrefixIndex* prefixes = nullptr;  // for the tokens that a submit would find; none: 0
};

// The answer to one job; what a worker does between two queues.
PreparedMessage answer_prepare_job(const PrepareContext& context, const PrepareJob& job);

class PrepareWorkers {
 public:
  PrepareWorkers(const PrepareContext& context, PrepareQueue& jobs, IoInbox& io, int threads);
  PrepareWorkers(const PrepareWorkers&) = delete;
  PrepareWorkers& operator=(const PrepareWorkers&) = delete;
  ~PrepareWorkers();

 private:
  void work(const std::stop_token& stop);

  PrepareContext context_;
  PrepareQueue& jobs_;
  IoInbox& io_;
  std::vector<std::jthread> threads_;
};

}  // namespace tandem::engine
