// HttpServer: the HTTP interface of tandemd: front, routes, workers, handlers. Main constructs one
// with its listening sockets and the services it may use. Routes and their policies are the table
// in routes.h; limits have defaults that suit one box.
//
// start/begin_drain/stop from the owner's thread. Services outlive the server; all of them are
// called from worker threads, Authenticator also from the front's thread (it must not block or
// touch a file).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/result.h"
#include "service/auth.h"
#include "service/generation.h"
#include "service/http/front.h"
#include "service/metrics.h"
#include "service/request_record.h"
#include "service/response_store.h"

namespace tandem::service {

// How requests wait whose headers say nothing (service/http/request_terms.h).
struct QueueRules {
  std::map<std::string, double, std::less<>> key_weights;  // by public id; 1 where it is missing
  std::set<std::string, std::less<>> batch_keys;
  int64_t deadline_ms = 0;  // 0: none of its own
};

struct HttpOptions {
  FrontLimits front;
  size_t streams_max = 64;          // answers at the same time; one worker thread each
  size_t stream_headroom = 8;       // workers for requests that are refused or answered at once
  size_t request_queue_max = 64;    // complete requests that wait for a worker
  size_t control_workers = 2;       // health, metrics, models: never behind inference
  size_t text_workers = 2;          // tokenize, count_tokens: an engine that hangs holds only these
  size_t stored_workers = 1;        // stored responses: the store has one thread of its own
  int64_t write_stall_ms = 15'000;  // a client that takes no byte for so long is gone
  int64_t peer_poll_ms = 50;        // how often a waiting answer looks at the client's socket
  int64_t ping_ms = 10'000;         // comment lines in a stream without events
  int64_t first_event_ms = 5'000;   // how long a stream waits for its first event before the 200
  int64_t prepare_deadline_ms = 60'000;
  int64_t request_deadline_ms = 3'600'000;  // of one generation; past it 504 or an error event
  QueueRules queue;
  bool check_host = true;          // Host must be a loopback name or in `hosts` (DNS rebinding)
  std::vector<std::string> hosts;  // further names, without port; lower case
};

struct HttpServices {
  const Clock& clock;  // the real one: the front compares it with epoll's time-outs
  ModelDirectory& models;
  const Authenticator& authenticator;
  RecordSink& records;
  Metrics& metrics;
  ResponseStore* responses = nullptr;  // null: none can be stored
  std::function<Json()> memory;        // for /readyz: level and steps of shedding; empty: left out
  // What is wrong with the box while it serves, as words of ours for /readyz; null: nothing ever is.
  std::function<std::vector<std::string>()> troubles;
};

class HttpServer {
 public:
  HttpServer(HttpOptions options, HttpServices services);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  Result<void> start(std::vector<Fd> listeners);

  // New inference work is refused with 503 (x-should-retry: false) and /readyz turns 503; health
  // stays.
  void begin_drain();
  // Answers that are being made. Zero after begin_drain: everything is delivered.
  [[nodiscard]] size_t active() const;
  // Ends what still runs (an error event and no final chunk; 503 when nothing was sent), joins all.
  void stop();

  [[nodiscard]] const Front::Counters& front_counters() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A loopback or any-address TCP listener, close-on-exec and non-blocking. Port 0: any free one.
Result<Fd> listen_tcp(const std::string& host, uint16_t port);
// Port a listener is bound to.
Result<uint16_t> bound_port(const Fd& listener);
// Only this machine can reach it.
bool bound_to_loopback(const Fd& listener);

}  // namespace tandem::service
