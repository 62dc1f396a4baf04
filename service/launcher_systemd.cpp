#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "service/atomic_file.h"
#include "service/launcher.h"
#include "service/spawn.h"

namespace tandem::service {
namespace {

constexpr auto kSystemctlLimit = std::chrono::seconds(30);

// Runs a program to its end and returns what it printed. Output is bounded; more is an error of it.
Result<std::string> run_program(const std::vector<std::string>& argv) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error(Errc::io, "pipe", errno);
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  TRY_ASSIGN(const pid_t pid, spawn(argv, {.output_fd = write_end.get()}));
  write_end.reset();
  auto process = Process::open(pid);
  if (process.ok() && !process->wait(kSystemctlLimit)) {
    (void)process->signal(SIGKILL);
    (void)process->wait(kSystemctlLimit);
    (void)process->reap();
    return make_error(Errc::io, argv[0] + " " + argv[1] + " did not return in time");
  }
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid || status != 0) {
    return make_error(Errc::io, argv[0] + " " + argv[1] + " failed with status " +
                                    std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -1));
  }
  char buffer[4096];
  const ssize_t n = ::read(read_end.get(), buffer, sizeof buffer);
  return std::string(buffer, n > 0 ? static_cast<size_t>(n) : 0);
}

class SystemdLauncher final : public Launcher {
 public:
  explicit SystemdLauncher(std::string systemctl) : systemctl_(std::move(systemctl)) {}

  Result<Process> launch(const LaunchRequest& request) override {
    TRY_ASSIGN(const std::string line, environment_line(request));
    TRY(write_file_atomically(request.run_dir + "/engine-" + request.instance + ".env", line, 0600));
    TRY(run_program({systemctl_, "start", unit(request.instance)}));
    TRY_ASSIGN(const std::string text,
               run_program({systemctl_, "show", "--property=MainPID", "--value",
                            unit(request.instance)}));
    pid_t pid = 0;
    (void)std::from_chars(text.data(), text.data() + text.size(), pid);
    if (pid <= 0) {
      return make_error(Errc::io, unit(request.instance) + " has no main process after its start: " +
                                      "look at journalctl -u " + unit(request.instance));
    }
    return Process::open(pid);
  }
  void terminate(const Process& process, const std::string& instance) override {
    // --no-block: the supervisor waits on the pidfd. Without a manager the signal still works.
    if (!run_program({systemctl_, "stop", "--no-block", unit(instance)}).ok()) {
      (void)process.signal(SIGTERM);
    }
  }
  void kill(const Process& process, const std::string& instance) override {
    (void)run_program({systemctl_, "kill", "--signal=SIGKILL", unit(instance)});
    (void)process.signal(SIGKILL);
  }

 private:
  static std::string unit(const std::string& instance) {
    return "tandem-engine@" + instance + ".service";
  }

  static Result<std::string> environment_line(const LaunchRequest& request) {
    std::string line = "TANDEM_ENGINE_ARGS=";
    for (const std::string& argument : request.arguments) {
      if (argument.find_first_of(" \t\r\n\"'\\$") != std::string::npos) {
        return make_error(Errc::invalid_argument,
                          "the systemd launcher cannot pass an argument with white space, quotes, "
                          "backslash or $: " + argument);
      }
      line += argument + ' ';
    }
    line.back() = '\n';
    return line;
  }

  const std::string systemctl_;
};

}  // namespace

std::unique_ptr<Launcher> make_systemd_launcher(std::string systemctl) {
  return std::make_unique<SystemdLauncher>(std::move(systemctl));
}

}  // namespace tandem::service
