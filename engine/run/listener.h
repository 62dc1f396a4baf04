// The engine's listening unix socket. Errors: io, with the path; exhausted when another process
// answers on the path (a stale socket, on which nobody does, is replaced).
#pragma once

#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace tandem::engine {

// Owns the descriptor and, when it made it, the path, which it unlinks at the end.
class Listener {
 public:
  // Created with mode 0600 from the first moment.
  static Result<Listener> create(const std::string& path);
  static Result<Listener> inherit(int fd);

  Listener(Listener&& other) noexcept = default;
  Listener& operator=(Listener&&) = delete;
  ~Listener() { remove(); }

  [[nodiscard]] int fd() const { return fd_.get(); }
  void remove();

 private:
  Listener(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Fd fd_;
  std::string path_;  // empty: inherited
};

}  // namespace tandem::engine
