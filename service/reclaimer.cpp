#include "service/reclaimer.h"

#include <sys/socket.h>

#include <cerrno>

#include "base/fd.h"
#include "memory_budget/reclaim.h"
#include "service/spawn.h"
#include "service/unix_socket.h"

namespace tandem::service {
namespace {

class NoReclaimer final : public Reclaimer {
 public:
  bool start() override { return false; }
  bool take_done() override { return false; }
};

class HelperReclaimer final : public Reclaimer {
 public:
  explicit HelperReclaimer(std::string helper) : helper_(std::move(helper)) {}

  bool start() override {
    if (process_.valid()) return true;  // the one that runs serves this wish too
    const auto pid = spawn({helper_, "once"}, {});
    auto process = pid.ok() ? Process::of_child(*pid) : Result<Process>(pid.error());
    if (!process.ok()) {
      problem_ = process.error().message;
      return false;
    }
    process_ = std::move(*process);
    return true;
  }

  bool take_done() override {
    if (!process_.valid() || !process_.exited()) return false;
    const std::string end = process_.reap();
    problem_ = end == "exit code 0" ? "" : helper_ + ": " + end;
    process_ = Process();
    return true;
  }

  [[nodiscard]] int fd() const override { return process_.valid() ? process_.pidfd() : -1; }
  [[nodiscard]] std::string problem() const override { return problem_; }

 private:
  const std::string helper_;
  Process process_;
  std::string problem_;
};

class SocketReclaimer final : public Reclaimer {
 public:
  explicit SocketReclaimer(std::string path) : path_(std::move(path)) {}

  bool start() override {
    if (socket_.valid()) return true;
    auto socket = connect_unix(path_);
    if (!socket.ok()) {
      problem_ = "tandemd may not drop caches: it does not run as root, and tandem-reclaim.socket does not answer: " +
                 socket.error().message;
      return false;
    }
    socket_ = std::move(*socket);
    answer_.clear();
    return true;
  }

  bool take_done() override {
    if (!socket_.valid()) return false;
    char buffer[budget::kReclaimAnswerMax];
    while (true) {
      const ssize_t got = ::recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
      if (got <= 0) break;
      answer_.append(buffer, static_cast<size_t>(got));
      if (answer_.size() > budget::kReclaimAnswerMax) break;
    }
    const auto done = budget::read_reclaim_answer(answer_);
    problem_ = done.ok() ? "" : "tandem-reclaim: " + done.error().message;
    socket_.reset();
    return true;
  }

  [[nodiscard]] int fd() const override { return socket_.get(); }
  [[nodiscard]] std::string problem() const override { return problem_; }

 private:
  const std::string path_;
  Fd socket_;
  std::string answer_;
  std::string problem_;
};

}  // namespace

std::unique_ptr<Reclaimer> make_no_reclaimer() { return std::make_unique<NoReclaimer>(); }

std::unique_ptr<Reclaimer> make_helper_reclaimer(std::string helper) {
  return std::make_unique<HelperReclaimer>(std::move(helper));
}

std::unique_ptr<Reclaimer> make_socket_reclaimer(std::string socket_path) {
  return std::make_unique<SocketReclaimer>(std::move(socket_path));
}

}  // namespace tandem::service
