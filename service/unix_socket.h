// Unix stream sockets by path: listen and connect, with the checks both sides need. Errors: io (with
// the path), invalid_argument when the path does not fit sun_path (107 bytes). Any thread.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace tandem::service {

struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

// Close-on-exec, blocking. not_found: no such file; unavailable: nobody listens (yet).
Result<Fd> connect_unix(const std::string& path);

// Binds with `mode` in force before anybody can connect. A socket file on which nobody answers is
// replaced; one with a live listener is an error.
Result<Fd> listen_unix(const std::string& path, mode_t mode);

Result<PeerCredentials> peer_credentials(const Fd& socket);

}  // namespace tandem::service
