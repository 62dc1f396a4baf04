// Front: one epoll thread that owns every accepted socket until one complete, bounded, well-framed
// and permitted request is buffered, and only then hands it on. Idle, slow and half-open
// connections cost a socket and a small buffer, no thread. Bodies that arrive chunked leave it
// decoded. Unread bytes are never taken for a request: a refused connection is answered, drained
// for a bounded while, closed.
//
// start/stop from the owner; give_back from any thread; the handler's methods run on the front's
// thread and must not block.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "service/http/request_framer.h"
#include "service/wire/error_map.h"

namespace tandem::service {

struct FrontLimits {
  FramerLimits framer;
  int64_t header_deadline_ms = 10'000;  // first byte (or accept) to the end of the headers
  int64_t body_deadline_ms = 60'000;    // end of the headers to the end of the body
  int64_t idle_ms = 75'000;             // keep-alive between requests
  int64_t linger_ms = 2'000;  // after an early refusal: how long unread bytes are discarded
  size_t linger_bytes_max = size_t{64} << 20;
  size_t connections_max = 4096;                  // past it the longest idle one is closed
  size_t connections_per_address_max = 4096;      // past it the new one is closed
  size_t buffered_bytes_max = size_t{512} << 20;  // of all incomplete requests; past it: 503
};

// What check_head decided; opaque to the front, handed on with the request.
struct Admission {
  size_t route = 0;
  std::string id_in_path;
  std::string key_id;
  std::string request_id;
};

// A share of FrontLimits::buffered_bytes_max, given back on destruction. Move-only.
class BufferedBytes {
 public:
  BufferedBytes() = default;
  explicit BufferedBytes(std::atomic<int64_t>& total) : total_(&total) {}
  BufferedBytes(BufferedBytes&& other) noexcept
      : total_(std::exchange(other.total_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  BufferedBytes& operator=(BufferedBytes&& other) noexcept {
    if (this != &other) {
      resize(0);
      total_ = std::exchange(other.total_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }
  BufferedBytes(const BufferedBytes&) = delete;
  BufferedBytes& operator=(const BufferedBytes&) = delete;
  ~BufferedBytes() { resize(0); }

  // Returns the new sum of all shares.
  int64_t resize(int64_t bytes) {
    if (total_ == nullptr) return 0;
    const int64_t change = bytes - bytes_;
    bytes_ = bytes;
    return total_->fetch_add(change, std::memory_order_relaxed) + change;
  }

 private:
  std::atomic<int64_t>* total_ = nullptr;
  int64_t bytes_ = 0;
};

// A request on its way to a worker, with the socket it came from.
struct ReadyRequest {
  Fd socket;  // non-blocking
  std::string peer_address;
  RequestHead head;
  std::string body;
  BufferedBytes body_share;
  std::string pipelined;  // bytes of the next request that arrived early
  Admission admission;
  SteadyTime complete_at{};
};

struct Refusal {
  const wire::ApiError& error;
  std::string_view request_id;  // empty: none was given yet
  std::string_view path;        // empty: no head has come
  bool head_only = false;       // the request was a HEAD
  bool keep_alive = false;
};

class FrontHandler {
 public:
  virtual ~FrontHandler() = default;
  // Once the headers are there and before any body is read. An error refuses the request.
  virtual std::variant<Admission, wire::ApiError> check_head(const RequestHead& head) = 0;
  // Takes the request, or leaves it untouched and says why not (the front then answers).
  virtual std::optional<wire::ApiError> dispatch(ReadyRequest& request) = 0;
  // The whole response text for a refusal that the front writes itself.
  virtual std::string render_refusal(const Refusal& refusal) = 0;
};

class Front {
 public:
  struct Counters {
    std::atomic<int64_t> connections{0};  // now
    std::atomic<int64_t> accepted{0};
    std::atomic<int64_t> refused{0};  // answered by the front with an error
    std::atomic<int64_t> evicted{0};  // idle ones closed for room
    std::atomic<int64_t> timed_out{0};
    std::atomic<int64_t> buffered_bytes{0};  // now
  };

  Front(const FrontLimits& limits, FrontHandler& handler);
  ~Front();
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  // Takes listening sockets (any family); sets them non-blocking and close-on-exec.
  Result<void> start(std::vector<Fd> listeners);
  // Closes the listeners: new connections are refused by the kernel, open ones go on.
  void stop_accepting();
  // Closes everything the front holds and joins its thread. Sockets at workers are theirs.
  void stop();

  // A worker finished its answer and the connection stays open.
  void give_back(Fd socket, std::string peer_address, std::string pipelined);
  // A worker finished its last answer on a connection: the sending half is shut, what the client
  // still sends is discarded for a bounded while, so that no reset overtakes the answer.
  void finish(Fd socket, std::string peer_address);
  // A worker closed its connection: it no longer counts.
  void connection_closed(std::string peer_address);

  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  const size_t connections_max_;
  class Loop;  // the thread's own state, in front.cpp
  Counters counters_;
  std::unique_ptr<Loop> loop_;
  std::jthread thread_;
};

}  // namespace tandem::service
