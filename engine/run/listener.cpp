#include "engine/run/listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tandem::engine {
namespace {

constexpr int kBacklog = 64;

Result<void> remove_if_stale(const sockaddr_un& address, const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode)) {
    return make_error(Errc::io, path + " exists and is no socket");
  }
  const Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return errno_error(Errc::io, "socket", errno);
  const int answered =
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  // A full backlog (EAGAIN) means that somebody listens, too.
  if (answered == 0 || errno == EAGAIN) {
    return make_error(Errc::exhausted, "another process answers on " + path);
  }
  if (::unlink(path.c_str()) != 0) return errno_error(Errc::io, "unlink " + path, errno);
  return {};
}

}  // namespace

Result<Listener> Listener::create(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return make_error(Errc::io, "socket path \"" + path + "\" has " + std::to_string(path.size()) +
                                    " bytes, limit " +
                                    std::to_string(sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  TRY(remove_if_stale(address, path));
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno_error(Errc::io, "socket", errno);
  const mode_t before = ::umask(0177);  // no thread but this one runs yet
  const int bound =
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int bind_errno = errno;
  ::umask(before);
  if (bound != 0) return errno_error(Errc::io, "bind " + path, bind_errno);
  Listener listener(std::move(fd), path);
  if (::listen(listener.fd(), kBacklog) != 0) return errno_error(Errc::io, "listen", errno);
  return listener;
}

Result<Listener> Listener::inherit(int fd) {
  int listening = 0;
  socklen_t size = sizeof listening;
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0) {
    return make_error(Errc::io, "descriptor " + std::to_string(fd) + " is no listening socket");
  }
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  return Listener(Fd(fd), {});
}

void Listener::remove() {
  // Unlinked only by its owner: a moved-from listener has no descriptor.
  if (fd_.valid() && !path_.empty()) ::unlink(path_.c_str());
  fd_.reset();
}

}  // namespace tandem::engine
