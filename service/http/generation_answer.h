// From started generations to an Answer: the whole one, or a stream. Both watch the client's socket
// while they wait, end with exactly one outcome on the tracker, and commit no status before there
// is a result (a stream commits with its first event, or when that takes longer than
// first_event_ms).
#pragma once

#include <memory>
#include <string>

#include "service/generation.h"
#include "service/http/answer_receipt.h"
#include "service/http/answer_run.h"
#include "service/http/answer_writer.h"
#include "service/http/handlers.h"
#include "service/http/request_terms.h"
#include "service/http/request_tracker.h"

namespace tandem::service {

// Counts one answer against streams_max while it lives.
class StreamSlot {
 public:
  static std::unique_ptr<StreamSlot> take(const HandlerContext& context);  // null: none is left
  explicit StreamSlot(std::atomic<int64_t>& active);
  ~StreamSlot();
  StreamSlot(const StreamSlot&) = delete;
  StreamSlot& operator=(const StreamSlot&) = delete;

 private:
  std::atomic<int64_t>& active_;
};

struct GenerationParts {
  Model& model;
  std::unique_ptr<StreamSlot> slot;
  std::unique_ptr<EventSource> run;
  std::unique_ptr<AnswerWriter> writer;
  std::unique_ptr<RequestTracker> tracker;
  RequestTerms terms;
  const AnswerReceipt* receipt = nullptr;  // the run's; null: there is none
};

Answer whole_answer(const HandlerContext& context, const Exchange& exchange, GenerationParts parts);
Answer stream_answer(const HandlerContext& context, const Exchange& exchange,
                     GenerationParts parts);

}  // namespace tandem::service
