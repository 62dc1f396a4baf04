// A whole HttpServer on a loopback port over fake models, and a raw client that sends exactly the
// bytes it is told to and reads one response.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/mutex.h"
#include "service/http/server.h"
#include "tests/unit/service/http_fake_models.h"
#include "tests/unit/service/http_fake_responses.h"

namespace tandem::service {

class RecordList final : public RecordSink {
 public:
  void record(RequestRecord record) override {
    {
      MutexLock lock(mutex_);
      records_.push_back(std::move(record));
    }
    changed_.notify_all();
  }
  // Waits up to 10 s for `count` records.
  std::vector<RequestRecord> wait(size_t count);

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<RequestRecord> records_ TANDEM_GUARDED_BY(mutex_);
};

// "good" and "other": inference; "boss": admin.
class FakeAuthenticator final : public Authenticator {
 public:
  [[nodiscard]] Result<Identity> authenticate(
      std::optional<std::string_view> authorization,
      std::optional<std::string_view> x_api_key) const override;
};

HttpOptions quick_options();

class TestServer {
 public:
  explicit TestServer(HttpOptions options = quick_options());

  FakeDirectory models;
  RecordList records;
  Metrics metrics;
  FakeAuthenticator authenticator;
  FakeResponses responses;
  SystemClock clock;
  HttpServer server;
  uint16_t port = 0;
};

struct Reply {
  int status = 0;                                            // 0: no response
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;                                          // chunks joined
  bool complete = false;                                     // whole body, or the final chunk
  bool closed = false;  // the server closed the connection while we read

  [[nodiscard]] std::string header(std::string_view name) const;
  [[nodiscard]] Json json() const;
  [[nodiscard]] std::string error_code() const;
  [[nodiscard]] std::vector<std::string> events() const;  // payloads of data: lines
};

class TestClient {
 public:
  explicit TestClient(const TestServer& server);

  bool send(std::string_view bytes);  // false: the server closed or reset
  Reply read();                       // up to 20 s
  std::string read_some();            // what is there after at most 20 s; empty: closed
  bool closed_by_peer();              // waits up to 20 s for the end of the connection
  void half_close();
  void close() { socket_.reset(); }
  [[nodiscard]] int fd() const { return socket_.get(); }

 private:
  bool fill();
  Fd socket_;
  std::string buffer_;
  bool closed_ = false;
};

// A request with a key, a Host and, when there is a body, its length.
std::string request(std::string_view method, std::string_view path, std::string_view body = {},
                    std::string_view more_headers = {});
Reply ask(const TestServer& server, std::string_view bytes);

inline constexpr std::string_view kHi = R"({"messages":[{"role":"user","content":"hi"}]})";
inline constexpr std::string_view kHiStream =
    R"({"messages":[{"role":"user","content":"hi"}],"stream":true})";

// Polls until `predicate` holds, up to 10 s.
template <typename Predicate>
bool eventually(Predicate predicate) {
  const SteadyTime end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  Mutex mutex;
  CondVar never;
  while (!predicate()) {
    const SteadyTime now = std::chrono::steady_clock::now();
    if (now >= end) return false;
    MutexLock lock(mutex);
    never.wait_until(mutex, now + std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace tandem::service
