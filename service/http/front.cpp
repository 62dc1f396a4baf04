#include "service/http/front.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/check.h"
#include "base/log.h"
#include "service/http/front_loop.h"

namespace tandem::service {
namespace {

using std::chrono::milliseconds;

constexpr size_t kDescriptorsBeside = 512;  // engines, store, logs, workers in between
constexpr int kAcceptsPerEvent = 64;
constexpr int kAcceptPauseMs = 100;  // when descriptors ran out and nothing could be closed

std::string address_text(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
  } else if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  } else {
    return "unix";
  }
  return text.data();
}

// A connection costs a descriptor; the usual soft limit of 1,024 is far below our cap.
void raise_descriptor_limit(size_t connections_max) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
  const rlim_t wanted = connections_max + kDescriptorsBeside;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  if (::setrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur < wanted) {
    log::warning("front: " + std::to_string(wanted) + " descriptors wanted, " +
                 std::to_string(limit.rlim_cur) + " allowed");
  }
}

}  // namespace

Result<void> Front::Loop::open(std::vector<Fd> listeners) {
  listeners_ = std::move(listeners);
  epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  wake_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_.valid() || !wake_.valid()) return errno_error(Errc::io, "front: epoll", errno);
  for (const Fd& listener : listeners_) {
    if (::fcntl(listener.get(), F_SETFL, O_NONBLOCK) < 0 ||
        ::fcntl(listener.get(), F_SETFD, FD_CLOEXEC) < 0) {
      return errno_error(Errc::io, "front: listening socket", errno);
    }
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeId;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) < 0) {
    return errno_error(Errc::io, "front: epoll_ctl", errno);
  }
  watch_listeners(true);
  return {};
}

void Front::Loop::watch_listeners(bool on) {
  if (listeners_watched_ == on) return;
  listeners_watched_ = on;
  for (size_t i = 0; i < listeners_.size(); ++i) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = i + 1;
    const int operation = on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL;
    if (::epoll_ctl(epoll_.get(), operation, listeners_[i].get(), &event) < 0) {
      log::error("front: cannot watch a listening socket");
    }
  }
}

void Front::Loop::post(Message message) {
  {
    MutexLock lock(mutex_);
    messages_.push_back(std::move(message));
  }
  const uint64_t one = 1;
  // A full counter (EAGAIN) already wakes the loop.
  if (::write(wake_.get(), &one, sizeof one) < 0 && errno != EAGAIN) {
    log::error("front: cannot wake the loop");
  }
}

void Front::Loop::on_wake() {
  uint64_t count = 0;
  if (::read(wake_.get(), &count, sizeof count) < 0) count = 0;
  std::vector<Message> messages;
  {
    MutexLock lock(mutex_);
    messages.swap(messages_);
  }
  for (Message& message : messages) {
    switch (message.kind) {
      case Message::Kind::give_back:
        add(std::move(message.socket), std::move(message.address), limits_.idle_ms,
            message.pipelined);
        break;
      case Message::Kind::finish:
        add_finished(std::move(message.socket), std::move(message.address));
        break;
      case Message::Kind::closed:
        uncount(message.address);
        break;
      case Message::Kind::stop_accepting:
        watch_listeners(false);
        accepting_ = false;
        listeners_.clear();
        break;
      case Message::Kind::stop:
        running_ = false;
        break;
    }
  }
}

int Front::Loop::wait_ms(SteadyTime now) const {
  SteadyTime next = now + std::chrono::hours(1);
  if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first);
  if (accepting_ && !listeners_watched_) next = std::min(next, resume_accepting_at_);
  if (next <= now) return 0;
  return static_cast<int>(std::chrono::ceil<milliseconds>(next - now).count());
}

void Front::Loop::run() {
  std::array<epoll_event, 128> events{};
  while (running_) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   wait_ms(std::chrono::steady_clock::now()));
    CHECK_MSG(count >= 0 || errno == EINTR, "epoll_wait");
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.u64 == kWakeId) {
        on_wake();
      } else if (event.data.u64 < kListenerIds) {
        const size_t index = event.data.u64 - 1;
        if (index < listeners_.size()) accept_some(listeners_[index].get());
      } else {
        on_event(event.data.u64, event.events);
      }
    }
    expire(std::chrono::steady_clock::now());
  }
  connections_.clear();
  listeners_.clear();
}

void Front::Loop::accept_some(int listener) {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    Fd socket(::accept4(listener, reinterpret_cast<sockaddr*>(&address), &length,
                        SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      // Out of descriptors or memory: the longest idle connection makes room, or we pause.
      if (!make_room()) {
        pause_accepting();
        return;
      }
      continue;
    }
    counters_.accepted.fetch_add(1, std::memory_order_relaxed);
    std::string text = address_text(address);
    const auto known = per_address_.find(text);
    if (known != per_address_.end() && known->second >= limits_.connections_per_address_max) {
      continue;
    }
    const auto open = static_cast<size_t>(counters_.connections.load(std::memory_order_relaxed));
    if (open >= limits_.connections_max && !make_room()) continue;
    const int one = 1;
    // Fails on a unix socket, where it is not needed.
    if (::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0) errno = 0;
    ++per_address_[text];
    counters_.connections.fetch_add(1, std::memory_order_relaxed);
    add(std::move(socket), std::move(text), limits_.header_deadline_ms, {});
  }
}

bool Front::Loop::make_room() {
  if (evictable_.empty()) return false;
  counters_.evicted.fetch_add(1, std::memory_order_relaxed);
  close(evictable_.begin()->second);
  return true;
}

void Front::Loop::pause_accepting() {
  watch_listeners(false);
  resume_accepting_at_ = std::chrono::steady_clock::now() + milliseconds(kAcceptPauseMs);
}

Front::Loop::Id Front::Loop::insert(Fd socket, std::string address) {
  const Id id = ++next_id_;
  auto owned = std::make_unique<FrontConnection>(limits_.framer, std::move(socket),
                                                 std::move(address), counters_.buffered_bytes);
  FrontConnection& connection = *owned;
  connections_.emplace(id, std::move(owned));
  watch(id, connection);
  return id;
}

void Front::Loop::add(Fd socket, std::string address, int64_t deadline_ms,
                      std::string_view pipelined) {
  const Id id = insert(std::move(socket), std::move(address));
  FrontConnection& connection = *connections_.at(id);
  set_deadline(id, connection, deadline_ms);
  if (!pipelined.empty()) take(id, connection, pipelined);
}

void Front::Loop::add_finished(Fd socket, std::string address) {
  const Id id = insert(std::move(socket), std::move(address));
  FrontConnection& connection = *connections_.at(id);
  connection.phase = FrontConnection::Phase::linger;
  set_deadline(id, connection, limits_.linger_ms);
  flush(id, connection);
}

void Front::Loop::set_deadline(Id id, FrontConnection& connection, int64_t after_ms) {
  deadlines_.erase({connection.deadline, id});
  evictable_.erase({connection.deadline, id});
  connection.deadline = std::chrono::steady_clock::now() + milliseconds(after_ms);
  deadlines_.emplace(connection.deadline, id);
  // Whoever has shown no key must not hold a place by sending a body slowly.
  const bool anonymous = connection.admission.key_id.empty();
  if (connection.phase == FrontConnection::Phase::head ||
      (connection.phase == FrontConnection::Phase::body && anonymous)) {
    evictable_.emplace(connection.deadline, id);
  }
}

void Front::Loop::forget(Id id, FrontConnection& connection) {
  deadlines_.erase({connection.deadline, id});
  evictable_.erase({connection.deadline, id});
  connections_.erase(id);
}

void Front::Loop::close(Id id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  uncount(found->second->address);
  forget(id, *found->second);  // closing the descriptor takes it out of epoll
}

void Front::Loop::uncount(const std::string& address) {
  counters_.connections.fetch_sub(1, std::memory_order_relaxed);
  const auto known = per_address_.find(address);
  if (known != per_address_.end() && --known->second == 0) per_address_.erase(known);
}

void Front::Loop::expire(SteadyTime now) {
  if (accepting_ && !listeners_watched_ && now >= resume_accepting_at_) watch_listeners(true);
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const Id id = deadlines_.begin()->second;
    FrontConnection& connection = *connections_.at(id);
    if (connection.phase == FrontConnection::Phase::linger || !connection.framer.started()) {
      close(id);
      continue;
    }
    counters_.timed_out.fetch_add(1, std::memory_order_relaxed);
    const bool head = connection.phase == FrontConnection::Phase::head;
    refuse(id, connection,
           wire::api_error(
               408, "request_timeout",
               std::string("the ") + (head ? "headers" : "body") + " did not arrive within " +
                   std::to_string(head ? limits_.header_deadline_ms : limits_.body_deadline_ms) +
                   " ms"),
           false);
  }
}

Front::Front(const FrontLimits& limits, FrontHandler& handler)
    : connections_max_(limits.connections_max),
      loop_(std::make_unique<Loop>(limits, handler, counters_)) {}

Front::~Front() { stop(); }

Result<void> Front::start(std::vector<Fd> listeners) {
  raise_descriptor_limit(connections_max_);
  TRY(loop_->open(std::move(listeners)));
  thread_ = std::jthread([this] { loop_->run(); });
  return {};
}

void Front::stop_accepting() {
  if (!thread_.joinable()) return;
  loop_->post({Loop::Message::Kind::stop_accepting, {}, {}, {}});
}

void Front::stop() {
  if (!thread_.joinable()) return;
  loop_->post({Loop::Message::Kind::stop, {}, {}, {}});
  thread_.join();
}

void Front::give_back(Fd socket, std::string peer_address, std::string pipelined) {
  loop_->post({Loop::Message::Kind::give_back, std::move(socket), std::move(peer_address),
               std::move(pipelined)});
}

void Front::finish(Fd socket, std::string peer_address) {
  loop_->post({Loop::Message::Kind::finish, std::move(socket), std::move(peer_address), {}});
}

void Front::connection_closed(std::string peer_address) {
  loop_->post({Loop::Message::Kind::closed, {}, std::move(peer_address), {}});
}

}  // namespace tandem::service
