#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "service/launcher.h"
#include "service/spawn.h"

namespace tandem::service {
namespace {

constexpr off_t kLogBytesMax = off_t{16} << 20;

// One generation is kept: an engine that crashes in a loop must not fill the disk.
void rotate(const std::string& log_path) {
  struct stat status{};
  if (::stat(log_path.c_str(), &status) == 0 && status.st_size > kLogBytesMax) {
    (void)::rename(log_path.c_str(), (log_path + ".1").c_str());
  }
}

class ChildLauncher final : public Launcher {
 public:
  Result<Process> launch(const LaunchRequest& request) override {
    rotate(request.log_path);
    std::vector<std::string> argv{request.binary};
    argv.insert(argv.end(), request.arguments.begin(), request.arguments.end());
    TRY_ASSIGN(const pid_t pid,
               spawn(argv, {.output = request.log_path, .own_session = true}));
    // Our own child, not reaped yet: the pid cannot have been reused.
    auto process = Process::open(pid);
    if (process.ok()) return process;
    // Nobody would watch it or collect its end.
    (void)::kill(pid, SIGKILL);
    (void)::waitpid(pid, nullptr, 0);
    if (process.error().code != Errc::not_found) return process;
    return make_error(Errc::io, request.binary + " ended at once, see " + request.log_path);
  }
  void terminate(const Process& process, const std::string&) override {
    // The whole group, which it leads since its start; while it lives, nobody else has that number.
    if (process.exited() || ::kill(-process.pid(), SIGTERM) != 0) (void)process.signal(SIGTERM);
  }
  void kill(const Process& process, const std::string&) override { (void)process.signal(SIGKILL); }
};

}  // namespace

std::unique_ptr<Launcher> make_child_launcher() { return std::make_unique<ChildLauncher>(); }

}  // namespace tandem::service
