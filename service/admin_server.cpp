#include "service/admin_server.h"

#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "base/check.h"
#include "base/log.h"
#include "base/utf8.h"
#include "service/admin_wire.h"
#include "service/unix_socket.h"

namespace tandem::service {
namespace {

constexpr size_t kConnectionsMax = 32;
constexpr auto kConnectionLimit = std::chrono::seconds(30);
constexpr auto kRefusedLimit = std::chrono::seconds(2);
constexpr int kAcceptPauseMs = 100;  // when descriptors ran out

Result<gid_t> group_id(const std::string& name) {
  group entry{};
  group* found = nullptr;
  std::vector<char> buffer(size_t{16} << 10);
  (void)::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found == nullptr) {
    return make_error(Errc::not_found, "server.admin_group: there is no group " + name);
  }
  return entry.gr_gid;
}

// Of the process at the other end, from the kernel: no look-up by pid, which could be reused.
std::vector<gid_t> peer_groups(const Fd& socket) {
  std::vector<gid_t> groups(1024);
  socklen_t bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) != 0) return {};
  groups.resize(bytes / sizeof(gid_t));
  return groups;
}

AdminServer::Peer peer_of(uid_t uid) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> buffer(size_t{16} << 10);
  (void)::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found);
  return {.uid = int64_t{uid},
          .name = found == nullptr ? "uid " + std::to_string(uid) : utf8::repair(entry.pw_name)};
}

}  // namespace

struct AdminServer::Connection {
  Fd socket;
  Peer peer;
  AdminDecoder decoder;
  std::string out;
  std::chrono::steady_clock::time_point end;
  // Refused: what still comes in is discarded until the peer has read the reason and closes. Closing
  // first, with bytes unread, would reset the connection and lose the reason.
  bool closing = false;

  void refuse(const Error& error) {
    out += encode_admin_message(admin_error(error));
    closing = true;
    end = std::chrono::steady_clock::now() + kRefusedLimit;
  }
};

AdminServer::AdminServer(Options options, Handler handler)
    : options_(std::move(options)), handler_(std::move(handler)) {}

AdminServer::~AdminServer() { stop(); }

Result<void> AdminServer::start() {
  if (!options_.group.empty()) {
    TRY_ASSIGN(group_, group_id(options_.group));
    has_group_ = true;
  }
  TRY_ASSIGN(listener_, listen_unix(options_.socket_path, has_group_ ? 0660 : 0600));
  if (has_group_ && ::chown(options_.socket_path.c_str(), static_cast<uid_t>(-1), group_) != 0) {
    return errno_error(Errc::io, "chgrp " + options_.socket_path, errno);
  }
  wake_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  CHECK(wake_.valid());
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  return {};
}

void AdminServer::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  thread_.join();
  listener_.reset();
  (void)::unlink(options_.socket_path.c_str());
}

Result<AdminServer::Peer> AdminServer::authorize(const Fd& socket) const {
  TRY_ASSIGN(const PeerCredentials peer, peer_credentials(socket));
  if (peer.uid == 0 || peer.uid == ::geteuid()) return peer_of(peer.uid);
  if (has_group_) {
    const std::vector<gid_t> groups = peer_groups(socket);
    if (peer.gid == group_ || std::find(groups.begin(), groups.end(), group_) != groups.end()) {
      return peer_of(peer.uid);
    }
  }
  log::warning("admin socket: user " + std::to_string(peer.uid) + " was refused");
  return make_error(Errc::unauthorized,
                    "user " + std::to_string(peer.uid) +
                        " may not administer this tandemd: use root, its own user, or a member of "
                        "server.admin_group");
}

bool AdminServer::accept_one(std::vector<std::unique_ptr<Connection>>& connections) const {
  Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) return false;
  auto connection = std::make_unique<Connection>();
  connection->end = std::chrono::steady_clock::now() + kConnectionLimit;
  Result<Peer> allowed = authorize(socket);
  if (allowed.ok()) connection->peer = *allowed;
  if (allowed.ok() && connections.size() >= kConnectionsMax) {
    allowed = make_error(Errc::exhausted, "too many connections to the admin socket");
  }
  if (!allowed.ok()) connection->refuse(allowed.error());
  connection->socket = std::move(socket);
  connections.push_back(std::move(connection));
  return true;
}

Json AdminServer::answer(const Json& request, const Peer& peer) const {
  const Json* command = request.find("command");
  if (command == nullptr || !command->is_string()) {
    return admin_error(make_error(Errc::invalid_argument, "no command", "command"));
  }
  auto result = handler_(command->as_string(), request, peer);
  if (!result.ok()) return admin_error(result.error());
  Json out = Json::object();
  out.set("ok", true);
  for (auto& [name, value] : result->as_object()) out.set(name, std::move(value));
  return out;
}

bool AdminServer::serve(Connection& connection) const {
  char buffer[16384];
  const ssize_t got = ::recv(connection.socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
  if (got > 0 && !connection.closing) {
    connection.decoder.feed(std::string_view(buffer, static_cast<size_t>(got)));
    auto message = connection.decoder.next();
    if (!message.ok()) {
      connection.refuse(message.error());
    } else if (message->has_value()) {
      connection.out += encode_admin_message(answer(**message, connection.peer));
      connection.end = std::chrono::steady_clock::now() + kConnectionLimit;
    }
  }
  while (!connection.out.empty()) {
    const ssize_t n = ::send(connection.socket.get(), connection.out.data(), connection.out.size(),
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
    connection.out.erase(0, static_cast<size_t>(n));
  }
  return true;
}

void AdminServer::run(const std::stop_token& stop) {
  std::vector<std::unique_ptr<Connection>> connections;
  bool pause = false;
  while (!stop.stop_requested()) {
    // A client that cannot be accepted keeps the listener readable: looking again at once would spin.
    std::vector<pollfd> polls{{wake_.get(), POLLIN, 0},
                              {pause ? -1 : listener_.get(), POLLIN, 0}};
    for (const auto& connection : connections) {
      const auto events = static_cast<short>(connection->out.empty() ? POLLIN : POLLIN | POLLOUT);
      polls.push_back({connection->socket.get(), events, 0});
    }
    const int limit_ms = pause ? kAcceptPauseMs : connections.empty() ? -1 : 1000;
    (void)::poll(polls.data(), polls.size(), limit_ms);
    const auto now = std::chrono::steady_clock::now();
    for (size_t i = 0; i < connections.size(); ++i) {
      Connection& connection = *connections[i];
      const bool ready = polls[i + 2].revents != 0;
      if ((ready && !serve(connection)) || now > connection.end) connection.socket.reset();
    }
    std::erase_if(connections, [](const auto& c) { return !c->socket.valid(); });
    pause = (polls[1].revents & POLLIN) != 0 && !accept_one(connections);
  }
}

}  // namespace tandem::service
