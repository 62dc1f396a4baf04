#include "service/request_record.h"

#include "base/check.h"

namespace tandem::service {

const char* outcome_name(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::finished: return "finished";
    case Outcome::cancelled: return "cancelled";
    case Outcome::rejected: return "rejected";
    case Outcome::failed: return "failed";
  }
  CHECK_MSG(false, "outcome out of range");
}

}  // namespace tandem::service
