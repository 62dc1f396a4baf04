// Reclaimer: writes dirty pages back, drops clean caches and compacts memory, once, by the privileged
// helper tandem-reclaim (rule U6.5). The restart machine asks for it after a model's processes are gone
// and its memory is back, never before; where it is not allowed, the start goes on without.
//
// Supervisor's thread only; waits for nobody (a connect: at most 0.2 s).
#pragma once

#include <memory>
#include <string>

#include "service/process.h"

namespace tandem::service {

class Reclaimer {
 public:
  virtual ~Reclaimer() = default;
  // False: not wanted here, or not possible; `problem()` says which.
  virtual bool start() = 0;
  // True once after a start, when it has ended.
  virtual bool take_done() = 0;
  // Readable when it has ended; -1: it does not run.
  [[nodiscard]] virtual int fd() const { return -1; }
  // Empty: it worked, or it is not wanted.
  [[nodiscard]] virtual std::string problem() const { return ""; }
};

// Never does anything: where no device shares the host's memory, the kernel takes clean caches back by
// itself when an engine needs the room.
std::unique_ptr<Reclaimer> make_no_reclaimer();
// Starts the program beside this one: for a tandemd that is root.
std::unique_ptr<Reclaimer> make_helper_reclaimer(std::string helper);
// Connects to the socket of a unit that runs it (packaging/systemd/tandem-reclaim.socket): for every other one.
std::unique_ptr<Reclaimer> make_socket_reclaimer(std::string socket_path);
// Where that unit listens.
inline constexpr const char* kReclaimSocket = "/run/tandem-reclaim.sock";

}  // namespace tandem::service
