#include "service/record_keeper.h"

#include "base/log.h"

namespace tandem::service {
namespace {

double seconds(int64_t us) { return static_cast<double>(us) / 1e6; }

// id model prompt_tokens output_tokens ttft_ms tok_s reason; never text of the request.
std::string log_line(const RequestRecord& r) {
  std::string line = "request " + r.id + " " + r.route + " model=" + r.model + " key=" + r.key_id +
                     " status=" + std::to_string(r.status) +
                     " prompt=" + std::to_string(r.prompt_tokens) +
                     " output=" + std::to_string(r.completion_tokens) +
                     " ttft_ms=" + std::to_string(r.first_token_us / 1000) +
                     " total_ms=" + std::to_string(r.total_us / 1000);
  if (r.decode_us > 0 && r.completion_tokens > 1) {
    const auto rate = static_cast<double>(r.completion_tokens - 1) / seconds(r.decode_us);
    line += " tok_s=" + std::to_string(static_cast<int64_t>(rate));
  }
  return line + " " + outcome_name(r.outcome) + " " + r.reason;
}

}  // namespace

RecordKeeper::RecordKeeper(Metrics& metrics, Store& store, const std::vector<std::string>& models)
    : metrics_(metrics), store_(store) {
  for (const std::string& model : models) series_.emplace(model, make_series(model));
}

RecordKeeper::Series RecordKeeper::make_series(const std::string& model) {
  const Labels labels{{"model_name", model}};
  return {
      .prompt_tokens = metrics_.counter("vllm:prompt_tokens_total", "Prompt tokens of answered requests", labels),
      .cached_tokens = metrics_.counter("tandem_cached_tokens_total", "Prompt tokens that were not computed again", labels),
      .completion_tokens = metrics_.counter("vllm:generation_tokens_total", "Generated tokens", labels),
      .llama_prompt_tokens = metrics_.counter("llamacpp:prompt_tokens_total", "Prompt tokens of answered requests", labels),
      .llama_predicted_tokens = metrics_.counter("llamacpp:tokens_predicted_total", "Generated tokens", labels),
      .first_token_s = metrics_.histogram("vllm:time_to_first_token_seconds", "Request complete to first token", labels),
      .total_s = metrics_.histogram("vllm:e2e_request_latency_seconds", "Request complete to end of the answer", labels),
      .queue_s = metrics_.histogram("vllm:request_queue_time_seconds", "Submit to first step", labels),
      .prefill_s = metrics_.histogram("vllm:request_prefill_time_seconds", "First step to first token", labels),
      .decode_s = metrics_.histogram("vllm:request_decode_time_seconds", "First token to last", labels),
      .per_token_s = metrics_.histogram("vllm:request_time_per_output_token_seconds", "Mean time between tokens of one request", labels)};
}

void RecordKeeper::count(const RequestRecord& r, const std::string& model) {
  // Bounded: our routes, our outcomes, our models.
  metrics_.counter("tandem_requests_total", "Requests by outcome",
                   {{"model", model}, {"route", r.route}, {"outcome", outcome_name(r.outcome)}})
      .add();
  metrics_.counter("tandem_responses_total", "Requests by HTTP status",
                   {{"status", std::to_string(r.status)}})
      .add();
  const auto at = series_.find(model);
  if (at == series_.end() || r.outcome == Outcome::rejected) return;
  const Series& s = at->second;
  s.prompt_tokens.add(r.prompt_tokens);
  s.llama_prompt_tokens.add(r.prompt_tokens);
  s.cached_tokens.add(r.cached_tokens);
  s.completion_tokens.add(r.completion_tokens);
  s.llama_predicted_tokens.add(r.completion_tokens);
  if (r.outcome != Outcome::finished || r.completion_tokens == 0) return;
  metrics_.counter("vllm:request_success_total", "Answered requests by finish reason",
                   {{"model_name", model}, {"finished_reason", r.reason}})
      .add();
  if (r.first_token_us > 0) s.first_token_s.observe(seconds(r.first_token_us));
  s.total_s.observe(seconds(r.total_us));
  s.queue_s.observe(seconds(r.queue_us));
  s.prefill_s.observe(seconds(r.prefill_us));
  s.decode_s.observe(seconds(r.decode_us));
  if (r.completion_tokens > 1) {
    s.per_token_s.observe(seconds(r.decode_us) / static_cast<double>(r.completion_tokens - 1));
  }
}

void RecordKeeper::record(RequestRecord record) {
  const bool known = series_.find(record.model) != series_.end();
  count(record, known ? record.model : "");
  log::info(log_line(record));
  store_.record(std::move(record));
}

}  // namespace tandem::service
