#include "service/generation.h"

#include <algorithm>

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

bool may_use(const ModelInfo& model, std::string_view key_id, policies::QueueClass queue_class) {
  if (!model.leaves_machine) return true;
  const auto& keys = model.allow_keys;
  const auto& classes = model.allow_classes;
  if (std::find(classes.begin(), classes.end(), policies::queue_class_name(queue_class)) != classes.end()) return true;
  return std::any_of(keys.begin(), keys.end(), [&](const std::string& allowed) {
    return allowed == "*" || (!key_id.empty() && allowed == key_id);
  });
}

}  // namespace tandem::service
