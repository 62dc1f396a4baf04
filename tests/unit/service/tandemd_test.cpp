// The programs themselves: tandemd over fake engines, driven through the admin socket and HTTP.
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cstring>
#include <thread>

#include "service/admin_wire.h"
#include "service/ctl/http_client.h"
#include "service/spawn.h"
#include "service/store/store.h"
#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Daemon {
 public:
  explicit Daemon(const std::string& script, const std::string& extra = "") {
    write_script(dir.path() + "/a.script", script);
    write_script(dir.path() + "/b.script", script);
    std::ofstream(config_path()) << "[server]\nlisten = \"127.0.0.1:0\"\n[engines]\nbinary = \""
                                 << std::filesystem::absolute(binary_path("fake_engine")).string()
                                 << "\"\ntrial_deadline = \"0ms\"\n" << extra
                                 // Others use this machine's memory too.
                                 << "[memory]\nyellow = \"16MiB\"\norange = \"8MiB\"\nred = \"4MiB\"\n"
                                    "black = \"2MiB\"\nfloor = \"16MiB\"\nreclaim = \"never\"\n"
                                 << "[model.default]\nname = \"alpha\"\nfile = \"a.script\"\n"
                                    "[model.optional]\nname = \"beta\"\nfile = \"b.script\"\n";
  }
  ~Daemon() {
    if (process.valid() && !process.exited()) stop();
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  [[nodiscard]] std::string config_path() const { return dir.path() + "/config.toml"; }
  [[nodiscard]] std::string socket_path() const { return dir.path() + "/run/admin.sock"; }

  Process launch() const {
    const auto pid = spawn({binary_path("tandemd"), "--config", config_path()},
                           {.output = dir.path() + "/log"});
    REQUIRE(pid.ok());
    auto started = Process::open(*pid);
    REQUIRE(started.ok());
    return std::move(*started);
  }
  // Of one that is to end by itself, at once perhaps.
  int exit_code() const {
    const auto pid = spawn({binary_path("tandemd"), "--config", config_path()},
                           {.output = dir.path() + "/log"});
    REQUIRE(pid.ok());
    int status = 0;
    REQUIRE(::waitpid(*pid, &status, 0) == *pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void start() {
    process = launch();
    REQUIRE(until_ready());
    address = ask("session").find("address")->as_string();
    key = ask("session").find("key")->as_string();
  }
  bool until_ready() {
    for (int i = 0; i < 2000; ++i) {
      const auto answer = ask_admin(socket_path(), Json::object({{"command", "status"}}), seconds(5));
      if (answer.ok() && state(*answer, 0) == "ready" && state(*answer, 1) == "ready") return true;
      if (process.wait(milliseconds(10))) return false;
    }
    return false;
  }
  static std::string state(const Json& status, size_t model) {
    return status.find("models")->as_array()[model].find("state")->as_string();
  }
  Json ask(const std::string& command) {
    auto answer = ask_admin(socket_path(), Json::object({{"command", command}}), seconds(10));
    REQUIRE(answer.ok());
    return std::move(*answer);
  }
  int64_t engine_pid(size_t model) {
    return ask("status").find("models")->as_array()[model].find("pid")->as_integer();
  }
  void stop() {
    CHECK(process.signal(SIGTERM));
    CHECK(process.wait(seconds(30)));
    CHECK(process.reap() == "exit code 0");
  }
  struct Answer {
    std::string data;
    Result<ctl::HttpAnswer> http = ctl::HttpAnswer{};
  };
  Answer chat(const std::string& model) const {
    Answer answer;
    answer.http = ctl::http_post(address, "/v1/chat/completions", key,
                                 R"({"stream":true,"messages":[{"role":"user","content":"hi"}],"model":")" +
                                     model + "\"}",
                                 [&](std::string_view bytes) { answer.data += bytes; });
    return answer;
  }
  std::string log() const {
    std::ifstream file(dir.path() + "/log");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TempDir dir;
  Process process;
  std::string address;
  std::string key;
};

// A stream in a thread of its own, once its first bytes have come.
class Streaming {
 public:
  explicit Streaming(Daemon& daemon, const std::string& model)
      : thread_([&daemon, model, this] { answer_ = daemon.chat(model); }) {
    const int64_t index = model == "alpha" ? 0 : 1;
    for (int i = 0; i < 1000; ++i) {
      const Json status = daemon.ask("status");
      const Json& found = status.find("models")->as_array()[static_cast<size_t>(index)];
      if (found.find("slots_busy")->as_integer() > 0) return;
    }
    FAIL("the stream did not start");
  }
  Daemon::Answer& wait() {
    thread_.join();
    return answer_;
  }

 private:
  Daemon::Answer answer_;
  std::jthread thread_;
};

TEST_CASE("SIGTERM lets a running answer end, then ends the engines, with exit code 0") {
  Daemon daemon("tokens 60\ntokens_per_second 100\n");
  daemon.start();
  auto engine = Process::open(static_cast<pid_t>(daemon.engine_pid(0)));
  REQUIRE(engine.ok());
  Streaming stream(daemon, "alpha");
  CHECK(daemon.process.signal(SIGTERM));
  const Daemon::Answer& answer = stream.wait();
  REQUIRE(answer.http.ok());
  CHECK(answer.data.find("word59") != std::string::npos);
  CHECK(answer.data.find("[DONE]") != std::string::npos);
  REQUIRE(daemon.process.wait(seconds(30)));
  CHECK(daemon.process.reap() == "exit code 0");
  CHECK(engine->exited());
  CHECK_FALSE(std::filesystem::exists(daemon.socket_path()));
}

TEST_CASE("an engine killed under a stream fails that stream only") {
  Daemon daemon("tokens 200\ntokens_per_second 200\n");
  daemon.start();
  Streaming failing(daemon, "beta");
  Streaming other(daemon, "alpha");
  auto engine = Process::open(static_cast<pid_t>(daemon.engine_pid(1)));
  REQUIRE(engine.ok());
  CHECK(engine->signal(SIGKILL));
  const Daemon::Answer& failed = failing.wait();
  CHECK(failed.data.find("\"error\"") != std::string::npos);
  CHECK(failed.data.find("[DONE]") == std::string::npos);
  const Daemon::Answer& whole = other.wait();
  REQUIRE(whole.http.ok());
  CHECK(whole.data.find("word199") != std::string::npos);
  REQUIRE(daemon.until_ready());  // restarted after its backoff
  CHECK(daemon.chat("beta").data.find("[DONE]") != std::string::npos);
}

TEST_CASE("kill -9 of tandemd: engines stay, the next one adopts them, keys and records are there") {
  Daemon daemon("tokens 4\n");
  daemon.start();
  auto made = ask_admin(daemon.socket_path(),
                        Json::object({{"command", "key.add"}, {"name", "me"}, {"scope", "inference"}}),
                        seconds(5));
  REQUIRE(made.ok());
  const std::string key = made->find("key")->find("key")->as_string();
  CHECK(daemon.chat("alpha").http->status == 200);
  for (int i = 0; i < 1000; ++i) {
    if (daemon.ask("status").find("store")->find("records_written")->as_integer() >= 1) break;
  }
  const int64_t pids[2] = {daemon.engine_pid(0), daemon.engine_pid(1)};
  CHECK(daemon.process.signal(SIGKILL));
  CHECK(daemon.process.wait(seconds(10)));
  (void)daemon.process.reap();
  daemon.start();
  CHECK(daemon.engine_pid(0) == pids[0]);
  CHECK(daemon.engine_pid(1) == pids[1]);
  daemon.key = key;
  CHECK(daemon.chat("beta").http->status == 200);
  daemon.stop();
  CHECK_FALSE(Process::open(static_cast<pid_t>(pids[0])).ok());
  const auto store = Store::open({.path = daemon.dir.path() + "/state/tandem.db"});
  REQUIRE(store.ok());
  CHECK((*store)->record_count().value() == 2);
}

TEST_CASE("tandemctl model restart brings back a failed model") {
  Daemon daemon("tokens 4\n", "restarts = 0\n");
  daemon.start();
  auto engine = Process::open(static_cast<pid_t>(daemon.engine_pid(1)));
  REQUIRE(engine.ok());
  CHECK(engine->signal(SIGKILL));
  for (int i = 0; i < 1000; ++i) {
    if (Daemon::state(daemon.ask("status"), 1) == "failed") break;
  }
  CHECK(Daemon::state(daemon.ask("status"), 1) == "failed");
  const auto pid = spawn({binary_path("tandemctl"), "--config", daemon.config_path(), "model",
                          "restart", "beta"},
                         {.output = daemon.dir.path() + "/ctl"});
  REQUIRE(pid.ok());
  auto command = Process::open(*pid);
  REQUIRE(command.ok());
  REQUIRE(command->wait(seconds(20)));
  CHECK(command->reap() == "exit code 0");
  CHECK(Daemon::state(daemon.ask("status"), 1) == "ready");
}

TEST_CASE("a second tandemd on the same directory is refused and harms nobody") {
  Daemon daemon("tokens 4\n");
  daemon.start();
  CHECK(daemon.exit_code() == 1);
  CHECK(daemon.log().find("another tandemd runs with run_dir") != std::string::npos);
  // Nor may two share the database only.
  std::ifstream config(daemon.config_path());
  std::string text{std::istreambuf_iterator<char>(config), {}};
  text.insert(text.find("[engines]"), "run_dir = \"run2\"\n");
  std::ofstream(daemon.config_path()) << text;
  CHECK(daemon.exit_code() == 1);
  CHECK(daemon.log().find("another tandemd runs with state_dir") != std::string::npos);
  CHECK(daemon.chat("alpha").http->status == 200);
}

TEST_CASE("SIGHUP is said to be ignored, and is") {
  Daemon daemon("tokens 4\n");
  daemon.start();
  CHECK(daemon.process.signal(SIGHUP));
  for (int i = 0; i < 1000 && daemon.log().find("SIGHUP: ignored") == std::string::npos; ++i) {
    (void)daemon.ask("status");
  }
  CHECK(daemon.log().find("SIGHUP: ignored") != std::string::npos);
  CHECK(daemon.chat("alpha").http->status == 200);
}

TEST_CASE("a wrong configuration is exit code 2") {
  Daemon daemon("", "[limits]\nstreams = \"many\"\n");
  CHECK(daemon.exit_code() == 2);
  CHECK(daemon.log().find("config.toml:7: limits.streams: must be an integer, not a string") !=
        std::string::npos);
}

TEST_CASE("the service manager hears READY once the default model answers, and watchdog pings") {
  Daemon daemon("load_ms 100\n");
  const std::string path = daemon.dir.path() + "/notify";
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::setenv("NOTIFY_SOCKET", path.c_str(), 1) == 0);
  REQUIRE(::setenv("WATCHDOG_USEC", "200000", 1) == 0);
  ::unsetenv("WATCHDOG_PID");
  daemon.process = daemon.launch();
  ::unsetenv("NOTIFY_SOCKET");
  ::unsetenv("WATCHDOG_USEC");
  const timeval limit{.tv_sec = 10, .tv_usec = 0};
  REQUIRE(::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
  std::string before_ready;
  bool ready = false;
  bool pinged = false;
  while (!ready || !pinged) {
    char buffer[4096];
    const ssize_t n = ::recv(socket.get(), buffer, sizeof buffer, 0);
    REQUIRE(n > 0);
    const std::string text(buffer, static_cast<size_t>(n));
    if (text == "READY=1") ready = true;
    if (text == "WATCHDOG=1") pinged = true;
    if (!ready) before_ready += text + "\n";
  }
  CHECK(before_ready.find("STATUS=alpha: ready") != std::string::npos);
  CHECK(daemon.until_ready());
}

}  // namespace
}  // namespace tandem::service
