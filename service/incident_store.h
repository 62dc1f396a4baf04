// IncidentStore: where incidents are kept for longer than a process lives. The store implements it
// (service/store/store.h); tests bring one that fails.
//
// Any thread; may block for a disk. Errors: those of the store.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "service/store/rows.h"

namespace tandem::service {

class IncidentStore {
 public:
  virtual ~IncidentStore() = default;

  // Writes each as it is now, all or none.
  virtual Result<void> put_incidents(const std::vector<IncidentRow>& rows) = 0;
  // Newest first.
  virtual Result<std::vector<IncidentRow>> incidents(const IncidentFilter& filter) = 0;
  virtual Result<int64_t> last_incident_id() = 0;  // 0: there was none
};

}  // namespace tandem::service
