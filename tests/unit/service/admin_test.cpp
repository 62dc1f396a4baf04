#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "service/admin_server.h"
#include "service/admin_wire.h"
#include "service/unix_socket.h"
#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Result<Json> echo(const std::string& command, const Json& request, const AdminServer::Peer& peer) {
  if (command == "fail") return make_error(Errc::not_found, "nothing here", "field");
  Json out = Json::object();
  out.set("command", command).set("uid", peer.uid).set("who", peer.name);
  const Json* text = request.find("text");
  if (text != nullptr) out.set("text", *text);
  return out;
}

class Served {
 public:
  explicit Served(const std::string& group = "")
      : path(dir.path() + "/admin.sock"), server({.socket_path = path, .group = group}, echo) {}
  Result<Json> ask(const std::string& command, Json text = Json()) {
    return ask_admin(path, Json::object({{"command", command}, {"text", std::move(text)}}),
                     seconds(10));
  }
  TempDir dir;
  std::string path;
  AdminServer server;
};

mode_t mode_of(const std::string& path) {
  struct stat status{};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_mode & 0777;
}

TEST_CASE("questions are answered, errors keep code and field") {
  Served served;
  REQUIRE(served.server.start().ok());
  CHECK(mode_of(served.path) == 0600);
  const auto answer = served.ask("status", "hello");
  REQUIRE(answer.ok());
  CHECK(admin_result(*answer)->find("text")->as_string() == "hello");
  CHECK(admin_result(*answer)->find("uid")->as_integer() == int64_t{::geteuid()});
  CHECK_FALSE(admin_result(*answer)->find("who")->as_string().empty());
  const auto large = served.ask("status", std::string(500'000, 'x'));
  REQUIRE(large.ok());
  CHECK(large->find("text")->as_string().size() == 500'000);
  const auto failed = admin_result(served.ask("fail").value());
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.error().code == Errc::not_found);
  CHECK(failed.error().message == "nothing here");
}

TEST_CASE("bad bytes get an error and the end of the connection") {
  Served served;
  REQUIRE(served.server.start().ok());
  for (const std::string& bytes : {std::string("\xff\xff\xff\xff", 4), std::string("\3\0\0\0{]x", 7),
                                  std::string("\2\0\0\0{}", 6)}) {
    const auto socket = connect_unix(served.path);
    REQUIRE(socket.ok());
    REQUIRE(::send(socket->get(), bytes.data(), bytes.size(), 0) ==
            static_cast<ssize_t>(bytes.size()));
    char buffer[4096];
    const ssize_t n = ::recv(socket->get(), buffer, sizeof buffer, 0);
    REQUIRE(n > 4);
    CHECK(std::string(buffer, static_cast<size_t>(n)).find("\"ok\":false") != std::string::npos);
  }
  CHECK(served.ask("status").ok());
}

TEST_CASE("silent and half-written connections delay nobody") {
  Served served;
  REQUIRE(served.server.start().ok());
  std::vector<Fd> silent;
  for (int i = 0; i < 20; ++i) {
    auto socket = connect_unix(served.path);
    REQUIRE(socket.ok());
    if (i % 2 == 0) CHECK(::send(socket->get(), "\4", 1, 0) == 1);
    silent.push_back(std::move(*socket));
  }
  const auto before = std::chrono::steady_clock::now();
  CHECK(served.ask("status").ok());
  CHECK(std::chrono::steady_clock::now() - before < seconds(1));
}

TEST_CASE("a stale socket file is replaced, a live one is an error") {
  Served served;
  { const auto dead = listen_unix(served.path, 0600); }
  REQUIRE(std::filesystem::exists(served.path));
  REQUIRE(served.server.start().ok());
  AdminServer second({.socket_path = served.path, .group = ""}, echo);
  const auto refused = second.start();
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("somebody already listens") != std::string::npos);
  CHECK(served.ask("status").ok());
  served.server.stop();
  CHECK_FALSE(std::filesystem::exists(served.path));
}

TEST_CASE("a path that does not fit and a group that does not exist are named") {
  const TempDir dir;
  AdminServer deep({.socket_path = dir.path() + "/" + std::string(110, 'x'), .group = ""}, echo);
  REQUIRE_FALSE(deep.start().ok());
  AdminServer group({.socket_path = dir.path() + "/a", .group = "no-such-group"}, echo);
  const auto refused = group.start();
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message == "server.admin_group: there is no group no-such-group");
}

// Asks as another user: 0 answered, 1 refused by credentials, 2 anything else.
int ask_as(const std::string& path, uid_t uid, gid_t gid) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (::setgroups(0, nullptr) != 0 || ::setgid(gid) != 0 || ::setuid(uid) != 0) ::_exit(3);
    const auto answer = ask_admin(path, Json::object({{"command", "status"}}), seconds(10));
    if (!answer.ok()) ::_exit(2);
    const auto result = admin_result(*answer);
    if (result.ok()) ::_exit(0);
    ::_exit(result.error().code == Errc::unauthorized ? 1 : 2);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WEXITSTATUS(status);
}

TEST_CASE("peer credentials decide, not only the file's mode") {
  if (::geteuid() != 0) {
    WARN("skipped: needs root to change users");
    return;
  }
  constexpr uid_t kNobody = 65534;
  Served served("daemon");
  REQUIRE(served.server.start().ok());
  CHECK(mode_of(served.path) == 0660);
  // Even with a mode that lets everybody connect.
  REQUIRE(::chmod(served.path.c_str(), 0666) == 0);
  REQUIRE(::chmod(served.dir.path().c_str(), 0755) == 0);
  CHECK(ask_as(served.path, 0, 0) == 0);
  CHECK(ask_as(served.path, kNobody, kNobody) == 1);
  const group* daemon = ::getgrnam("daemon");
  REQUIRE(daemon != nullptr);
  CHECK(ask_as(served.path, kNobody, daemon->gr_gid) == 0);
}

}  // namespace
}  // namespace tandem::service
