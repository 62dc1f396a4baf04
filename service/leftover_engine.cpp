#include "service/leftover_engine.h"

#include "base/log.h"
#include "service/engine_record.h"
#include "service/process.h"
#include "service/unix_socket.h"

namespace tandem::service {
namespace {

// Who listens, by the kernel's word; else who was started last, if that process still lives. 0: nobody.
pid_t find_engine(const std::string& base) {
  const auto socket = connect_unix(base + ".sock");
  if (socket.ok()) {
    const auto peer = peer_credentials(*socket);
    return peer.ok() ? peer->pid : 0;
  }
  const auto record = read_engine_record(base + ".json");
  if (!record.ok()) return 0;
  const auto pid = static_cast<pid_t>(record->pid);
  const auto ticks = process_start_ticks(pid);
  const bool same = ticks.ok() && *ticks == static_cast<uint64_t>(record->start_ticks);
  return same ? pid : 0;
}

}  // namespace

bool end_leftover_engine(const std::string& run_dir, const std::string& role, Launcher& launcher) {
  const pid_t pid = find_engine(run_dir + "/engine-" + role);
  if (pid <= 0) return false;
  const auto process = Process::open(pid);
  if (!process.ok() || !process_is_ours(pid)) return false;
  log::warning("no " + role + " model is configured: its engine of before, process " +
               std::to_string(pid) + ", is told to end");
  launcher.terminate(*process, role);
  return true;
}

}  // namespace tandem::service
