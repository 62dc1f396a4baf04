// Worker: one thread that takes complete requests from a queue and answers them through the
// packaged HTTP library, which reads a request head of ours (it never sees a client's byte) and
// writes the response to the client's socket through a stream of ours. Bodies, ranges, compression,
// keep-alive and limits are therefore not the library's business.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "service/http/exchange.h"
#include "service/http/front.h"
#include "service/http/worker_queue.h"

namespace tandem::service {

struct WorkerSetup {
  WorkerQueue& queue;
  Front& front;
  // Runs the handler of a request. Must not throw.
  std::function<Answer(ReadyRequest&)> handle;
  const std::atomic<bool>& stopping;  // set: unfinished writes end at once
  int64_t write_stall_ms = 15'000;
  int64_t idle_ms = 75'000;  // for the Keep-Alive header
};

class Worker {
 public:
  explicit Worker(WorkerSetup setup);
  // The queue must be closed first.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

 private:
  class Session;
  std::unique_ptr<Session> session_;
  std::jthread thread_;
};

}  // namespace tandem::service
