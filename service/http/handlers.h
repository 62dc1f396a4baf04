// The endpoints' handlers: from a parsed HTTP request to an Answer. They run on worker threads,
// return every failure as an Answer and hold no state of their own: what they share is in
// HandlerContext.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "service/http/exchange.h"
#include "service/http/server.h"

namespace tandem::service {

struct HandlerContext {
  const HttpOptions& options;
  const HttpServices& services;
  const std::atomic<bool>& stopping;     // end now
  std::atomic<bool>& draining;           // no new work
  std::atomic<int64_t>& active_streams;  // generations that are being answered
};

Answer handle_chat(const HandlerContext& context, const Exchange& exchange);
Answer handle_completions(const HandlerContext& context, const Exchange& exchange);
Answer handle_messages(const HandlerContext& context, const Exchange& exchange);
Answer handle_count_tokens(const HandlerContext& context, const Exchange& exchange);
Answer handle_responses(const HandlerContext& context, const Exchange& exchange);
Answer handle_stored_response(const HandlerContext& context, const Exchange& exchange);
Answer handle_delete_response(const HandlerContext& context, const Exchange& exchange);
// Both in Anthropic's form for a client that sends `anthropic-version`.
Answer handle_models(const HandlerContext& context, const Exchange& exchange);
Answer handle_model(const HandlerContext& context, const Exchange& exchange);
Answer handle_tokenize(const HandlerContext& context, const Exchange& exchange);
Answer handle_detokenize(const HandlerContext& context, const Exchange& exchange);
Answer handle_alive();
Answer handle_ready(const HandlerContext& context);
Answer handle_metrics(const HandlerContext& context);
Answer handle_root();

// `prefix` and 24 random hexadecimal digits.
std::string random_id(std::string_view prefix);

}  // namespace tandem::service
