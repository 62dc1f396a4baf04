// EngineRecord: what tandemd remembers of a running engine in RUN_DIR/engine-ROLE.json, so that the
// next tandemd can adopt it. Written atomically after the start and again after the handshake; the
// file is ours but may be old or damaged: reading checks everything. Errors: not_found, corrupt, io.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "memory_budget/restart.h"

namespace tandem::service {

struct EngineRecord {
  int64_t pid = 0;
  int64_t start_ticks = 0;   // since boot, from /proc/PID/stat
  std::string config_hash;
  std::string instance_id;   // empty before the handshake
  std::string weights_hash;  // empty before the handshake
  // What it was started with instead of what is configured: a fallback. A record without one, also of an
  // older tandemd: the configured one.
  std::optional<budget::Profile> fallback = std::nullopt;
};

Result<void> write_engine_record(const std::string& path, const EngineRecord& record);
Result<EngineRecord> read_engine_record(const std::string& path);

}  // namespace tandem::service
