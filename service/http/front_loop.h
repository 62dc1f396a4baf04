// The state and the thread body of Front: connections, deadlines, messages from other threads.
// Internal to front.cpp (loop, accepting, deadlines) and front_connection.cpp (one connection's
// life).
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "service/http/front.h"

namespace tandem::service {

// One accepted socket until its request is complete, and while a refusal is delivered.
struct FrontConnection {
  enum class Phase : uint8_t { head, body, linger };

  FrontConnection(const FramerLimits& limits, Fd accepted, std::string peer,
                  std::atomic<int64_t>& buffered_total)
      : socket(std::move(accepted)),
        address(std::move(peer)),
        framer(limits),
        share(buffered_total) {}

  Fd socket;
  std::string address;
  RequestFramer framer;
  Phase phase = Phase::head;
  Admission admission;
  bool head_only = false;
  std::string path;  // of the request that is being read; empty before its head
  BufferedBytes share;
  SteadyTime deadline{};
  std::string pending;  // read, but not looked at until `out` is gone
  std::string out;      // to be written
  size_t out_done = 0;
  size_t discarded_bytes = 0;
  bool write_closed = false;
  uint32_t interest = 0;  // what epoll watches
};

class Front::Loop {
 public:
  Loop(const FrontLimits& limits, FrontHandler& handler, Counters& counters)
      : limits_(limits), handler_(handler), counters_(counters) {}

  Result<void> open(std::vector<Fd> listeners);
  void run();

  // From other threads.
  struct Message {
    enum class Kind : uint8_t { give_back, finish, closed, stop_accepting, stop } kind;
    Fd socket;
    std::string address;
    std::string pipelined;
  };
  void post(Message message);

 private:
  using Id = uint64_t;
  static constexpr Id kWakeId = 0;
  static constexpr Id kListenerIds = 1'000'000;  // 1..: listeners; past it: connections

  void on_wake();
  void accept_some(int listener);
  bool make_room();
  void pause_accepting();
  void watch_listeners(bool on);
  Id insert(Fd socket, std::string address);
  void add(Fd socket, std::string address, int64_t deadline_ms, std::string_view pipelined);
  void add_finished(Fd socket, std::string address);
  void on_event(Id id, uint32_t events);
  void read_some(Id id, FrontConnection& connection);
  // False when the connection is no longer here (closed, or handed on).
  bool take(Id id, FrontConnection& connection, std::string_view bytes);
  bool on_head(Id id, FrontConnection& connection, bool more_bytes);
  bool hand_on(Id id, FrontConnection& connection, std::string_view rest);
  bool refuse(Id id, FrontConnection& connection, const wire::ApiError& error, bool keep_alive);
  bool flush(Id id, FrontConnection& connection);
  void set_deadline(Id id, FrontConnection& connection, int64_t after_ms);
  void watch(Id id, FrontConnection& connection);
  void expire(SteadyTime now);
  void close(Id id);
  void forget(Id id, FrontConnection& connection);
  void uncount(const std::string& address);
  [[nodiscard]] int wait_ms(SteadyTime now) const;

  const FrontLimits limits_;
  FrontHandler& handler_;
  Counters& counters_;
  Fd epoll_;
  Fd wake_;
  std::vector<Fd> listeners_;
  bool accepting_ = true;
  bool listeners_watched_ = false;
  SteadyTime resume_accepting_at_{};
  bool running_ = true;
  Id next_id_ = kListenerIds;
  std::unordered_map<Id, std::unique_ptr<FrontConnection>> connections_;
  std::set<std::pair<SteadyTime, Id>> deadlines_;
  std::set<std::pair<SteadyTime, Id>> evictable_;  // without complete headers, or without a key
  std::unordered_map<std::string, size_t> per_address_;
  Mutex mutex_;
  std::vector<Message> messages_ TANDEM_GUARDED_BY(mutex_);
};

}  // namespace tandem::service
