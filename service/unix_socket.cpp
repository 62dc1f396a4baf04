#include "service/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tandem::service {
namespace {

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return make_error(Errc::invalid_argument, "socket path " + path + " has " +
                                                  std::to_string(path.size()) +
                                                  " bytes, 1 to 107 are possible");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace

Result<Fd> connect_unix(const std::string& path) {
  TRY_ASSIGN(const sockaddr_un address, address_of(path));
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return errno_error(Errc::io, "socket", errno);
  // EAGAIN (a full backlog) is reported at once: a blocking connect could wait without bound.
  timeval timeout{.tv_sec = 0, .tv_usec = 200'000};
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const int code = errno;
    if (code == ENOENT) return make_error(Errc::not_found, "no socket at " + path);
    const Errc kind =
        code == ECONNREFUSED || code == EAGAIN ? Errc::unavailable : Errc::io;
    return errno_error(kind, "connect to " + path, code);
  }
  timeout = {};
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  return socket;
}

Result<Fd> listen_unix(const std::string& path, mode_t mode) {
  TRY_ASSIGN(const sockaddr_un address, address_of(path));
  auto probe = connect_unix(path);
  if (probe.ok()) {
    return make_error(Errc::io, "somebody already listens on " + path);
  }
  if (probe.error().code == Errc::unavailable) {
    if (::unlink(path.c_str()) != 0) return errno_error(Errc::io, "remove stale " + path, errno);
  } else if (probe.error().code != Errc::not_found) {
    return probe.error();
  }
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return errno_error(Errc::io, "socket", errno);
  // fchmod on the unbound socket sets the mode that bind gives the file: no umask, no window.
  if (::fchmod(socket.get(), mode) != 0) return errno_error(Errc::io, "fchmod " + path, errno);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return errno_error(Errc::io, "bind " + path, errno);
  }
  if (::chmod(path.c_str(), mode) != 0) return errno_error(Errc::io, "chmod " + path, errno);
  if (::listen(socket.get(), 64) != 0) return errno_error(Errc::io, "listen on " + path, errno);
  return socket;
}

Result<PeerCredentials> peer_credentials(const Fd& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return errno_error(Errc::io, "SO_PEERCRED", errno);
  }
  return PeerCredentials{.pid = peer.pid, .uid = peer.uid, .gid = peer.gid};
}

}  // namespace tandem::service
