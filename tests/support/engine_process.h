// Starts one of our binaries for a test, and a temporary folder for its files. Both clean up. The
// process holds none of the test's output: if the test dies first, nobody waits for that.
// (TANDEM_CHECK_2: the name CHECK belongs to Catch2 in tests.)
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

extern char** environ;

namespace tandem::tests {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = "/tmp/tandem-test-XXXXXX";
    TANDEM_CHECK_2(::mkdtemp(pattern.data()) != nullptr, "mkdtemp");
    path_ = pattern;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string path(std::string_view name) const {
    return path_ + "/" + std::string(name);
  }
  [[nodiscard]] std::string write(std::string_view name, std::string_view text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }

 private:
  std::string path_;
};

// Value of an environment variable that ctest sets, or `otherwise`.
inline std::string test_environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

class EngineProcess {
 public:
  // `binary` is a name inside TANDEM_BIN_DIR. stderr goes to `log` when given, else nowhere.
  // inherited_fd becomes descriptor 3 of the process.
  EngineProcess(const std::string& binary, const std::vector<std::string>& arguments,
                const std::string& log = "/dev/null", int inherited_fd = -1) {
    std::string path = test_environment("TANDEM_BIN_DIR", "build/release/bin") + "/" + binary;
    std::vector<std::string> copies = arguments;
    std::vector<char*> argv{path.data()};
    for (std::string& argument : copies) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&actions, 2, 1);
    if (inherited_fd >= 0) posix_spawn_file_actions_adddup2(&actions, inherited_fd, 3);
    const int spawned = ::posix_spawn(&pid_, path.c_str(), &actions, nullptr, argv.data(), environ);
    TANDEM_CHECK_2(spawned == 0, "posix_spawn");
    posix_spawn_file_actions_destroy(&actions);
  }
  EngineProcess(const EngineProcess&) = delete;
  EngineProcess& operator=(const EngineProcess&) = delete;
  ~EngineProcess() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  [[nodiscard]] pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  // Exit code, or minus the signal that ended it.
  int wait_exit() {
    int status = 0;
    TANDEM_CHECK_2(::waitpid(pid_, &status, 0) == pid_, "waitpid");
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace tandem::tests
