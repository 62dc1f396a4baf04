#include "service/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"

namespace tandem::service {
namespace {

// The C structures of posix_spawn, destroyed on every path.
struct Plan {
  Plan() {
    CHECK(::posix_spawn_file_actions_init(&actions) == 0);
    CHECK(::posix_spawnattr_init(&attributes) == 0);
  }
  ~Plan() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

void plan_descriptors(Plan& plan, const SpawnOptions& options) {
  CHECK(::posix_spawn_file_actions_addopen(&plan.actions, 0, "/dev/null", O_RDONLY, 0) == 0);
  if (!options.output.empty()) {
    CHECK(::posix_spawn_file_actions_addopen(&plan.actions, 1, options.output.c_str(),
                                             O_WRONLY | O_CREAT | O_APPEND, 0600) == 0);
    CHECK(::posix_spawn_file_actions_adddup2(&plan.actions, 1, 2) == 0);
  } else if (options.output_fd >= 0) {
    CHECK(::posix_spawn_file_actions_adddup2(&plan.actions, options.output_fd, 1) == 0);
  }
  CHECK(::posix_spawn_file_actions_addclosefrom_np(&plan.actions, 3) == 0);
}

}  // namespace

Result<pid_t> spawn(const std::vector<std::string>& argv, const SpawnOptions& options) {
  CHECK(!argv.empty());
  Plan plan;
  plan_descriptors(plan, options);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  if (options.own_session) flags = static_cast<short>(flags | POSIX_SPAWN_SETSID);
  CHECK(::posix_spawnattr_setsigmask(&plan.attributes, &none) == 0);
  CHECK(::posix_spawnattr_setsigdefault(&plan.attributes, &all) == 0);
  CHECK(::posix_spawnattr_setflags(&plan.attributes, flags) == 0);
  std::vector<char*> pointers;
  for (const std::string& argument : argv) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  pid_t pid = 0;
  const int code = ::posix_spawnp(&pid, argv[0].c_str(), &plan.actions, &plan.attributes,
                                  pointers.data(), environ);
  if (code != 0) return errno_error(Errc::io, "cannot start " + argv[0], code);
  return pid;
}

}  // namespace tandem::service
