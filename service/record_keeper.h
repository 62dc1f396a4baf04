// RecordKeeper: where every finished request ends: it updates the metrics, writes one log line and
// queues the row for the store. Never blocks; any thread. The names of vLLM and llama-server are used
// where the meaning is the same.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "service/metrics.h"
#include "service/request_record.h"
#include "service/store/store.h"

namespace tandem::service {

class RecordKeeper final : public RecordSink {
 public:
  // `models`: configured names; a record of any other is counted under "".
  RecordKeeper(Metrics& metrics, Store& store, const std::vector<std::string>& models);
  void record(RequestRecord record) override;

 private:
  struct Series {
    Counter& prompt_tokens;
    Counter& cached_tokens;
    Counter& completion_tokens;
    Counter& llama_prompt_tokens;
    Counter& llama_predicted_tokens;
    Histogram& first_token_s;
    Histogram& total_s;
    Histogram& queue_s;
    Histogram& prefill_s;
    Histogram& decode_s;
    Histogram& per_token_s;
  };
  Series make_series(const std::string& model);
  void count(const RequestRecord& record, const std::string& model);

  Metrics& metrics_;
  Store& store_;
  std::map<std::string, Series> series_;  // immutable after construction
};

}  // namespace tandem::service
