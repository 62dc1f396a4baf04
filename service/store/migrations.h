// The schema, as numbered steps that are never edited once released: a change is a new step. The
// number of the last step is PRAGMA user_version. A database of a newer version is refused.
#pragma once

#include "base/result.h"
#include "service/store/database.h"

namespace tandem::service {

int64_t schema_version_latest();
Result<int64_t> schema_version(Database& database);
// Each step in its own transaction.
Result<void> migrate(Database& database);

}  // namespace tandem::service
