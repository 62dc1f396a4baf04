#include "service/reclaimer.h"

#include "service/spawn.h"

namespace tandem::service {
namespace {

class NoReclaimer final : public Reclaimer {
 public:
  bool start() override { return false; }
  bool take_done() override { return false; }
};

class HelperReclaimer final : public Reclaimer {
 public:
  HelperReclaimer(std::string helper, bool privileged)
      : helper_(std::move(helper)), privileged_(privileged) {}

  bool start() override {
    if (!privileged_) {
      problem_ = "tandemd may not drop caches: it does not run as root, and no helper unit is installed";
      return false;
    }
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
  const bool privileged_;
  Process process_;
  std::string problem_;
};

}  // namespace

std::unique_ptr<Reclaimer> make_no_reclaimer() { return std::make_unique<NoReclaimer>(); }

std::unique_ptr<Reclaimer> make_helper_reclaimer(std::string helper, bool privileged) {
  return std::make_unique<HelperReclaimer>(std::move(helper), privileged);
}

}  // namespace tandem::service
