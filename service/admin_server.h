// AdminServer: the unix socket of tandemctl, served by one thread of its own, so that neither HTTP
// load nor a stuck client delays it: connections are multiplexed, and each has a deadline. Every
// connection's peer credentials are checked: root, the service's own user, or a member of the
// configured group; anybody else gets an error and the end of the connection.
//
// start/stop by the owner; the handler is called on the server's thread and should return within a
// fraction of a second.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/json.h"
#include "base/result.h"

namespace tandem::service {

class AdminServer {
 public:
  struct Options {
    std::string socket_path;
    std::string group;  // empty: none
  };
  // Who asks, as the kernel says.
  struct Peer {
    int64_t uid = -1;
    std::string name;  // "anna"; "uid 1234" without a name
  };
  // Called with a request of the right form; returns the answer ("ok" is added).
  using Handler =
      std::function<Result<Json>(const std::string& command, const Json& request, const Peer& peer)>;

  AdminServer(Options options, Handler handler);
  ~AdminServer();
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

  // Errors: io (socket in use, directory missing), not_found (no such group).
  Result<void> start();
  void stop();

 private:
  struct Connection;

  void run(const std::stop_token& stop);
  // False: out of descriptors, or the client is gone already.
  bool accept_one(std::vector<std::unique_ptr<Connection>>& connections) const;
  // False: the connection is over.
  bool serve(Connection& connection) const;
  [[nodiscard]] Json answer(const Json& request, const Peer& peer) const;
  // Who it is. Error: unauthorized.
  [[nodiscard]] Result<Peer> authorize(const Fd& socket) const;

  const Options options_;
  const Handler handler_;
  gid_t group_ = 0;
  bool has_group_ = false;
  Fd listener_;
  Fd wake_;
  std::jthread thread_;
};

}  // namespace tandem::service
