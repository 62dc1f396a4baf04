#include "service/generation.h"

#include "base/check.h"

namespace tandem::service {

const char* model_state_name(ModelState state) noexcept {
  switch (state) {
    case ModelState::stopped: return "stopped";
    case ModelState::waiting: return "waiting";
    case ModelState::starting: return "starting";
    case ModelState::loading: return "loading";
    case ModelState::ready: return "ready";
    case ModelState::draining: return "draining";
    case ModelState::backoff: return "backoff";
    case ModelState::failed: return "failed";
  }
  CHECK_MSG(false, "model state out of range");
}

}  // namespace tandem::service
