#include "service/engine_record.h"

#include "base/json.h"
#include "service/atomic_file.h"

namespace tandem::service {
namespace {

constexpr size_t kRecordBytesMax = 4096;
constexpr int64_t kSlotsMax = 1 << 16;
constexpr int64_t kBytesMax = int64_t{1} << 50;

Error bad_field(const std::string& path, const char* field) {
  return make_error(Errc::corrupt, path + ": field " + field + " is missing or of another type",
                    field);
}

Result<int64_t> integer(const Json& json, const std::string& path, const char* field) {
  const Json* value = json.find(field);
  if (value == nullptr || !value->is_integer()) return bad_field(path, field);
  return value->as_integer();
}

Result<std::string> text(const Json& json, const std::string& path, const char* field) {
  const Json* value = json.find(field);
  if (value == nullptr || !value->is_string()) return bad_field(path, field);
  return value->as_string();
}

Json profile_json(const budget::Profile& profile) {
  return Json::object({{"name", profile.name},
                       {"kv_bytes", profile.kv_bytes},
                       {"slots", profile.slots},
                       {"peak_bytes", profile.peak_bytes},
                       {"steady_bytes", profile.steady_bytes}});
}

Result<budget::Profile> read_profile(const Json& json, const std::string& path) {
  if (!json.is_object()) return bad_field(path, "fallback");
  budget::Profile profile;
  TRY_ASSIGN(profile.name, text(json, path, "name"));
  TRY_ASSIGN(profile.kv_bytes, integer(json, path, "kv_bytes"));
  TRY_ASSIGN(profile.slots, integer(json, path, "slots"));
  TRY_ASSIGN(profile.peak_bytes, integer(json, path, "peak_bytes"));
  TRY_ASSIGN(profile.steady_bytes, integer(json, path, "steady_bytes"));
  const bool sane = profile.slots > 0 && profile.slots <= kSlotsMax && profile.kv_bytes >= 0 &&
                    profile.peak_bytes >= 0 && profile.steady_bytes >= 0 && profile.kv_bytes <= kBytesMax &&
                    profile.peak_bytes <= kBytesMax && profile.steady_bytes <= kBytesMax;
  if (!sane) return bad_field(path, "fallback");
  return profile;
}

}  // namespace

Result<void> write_engine_record(const std::string& path, const EngineRecord& record) {
  Json json = Json::object();
  json.set("pid", record.pid)
      .set("start_ticks", record.start_ticks)
      .set("config_hash", record.config_hash)
      .set("instance_id", record.instance_id)
      .set("weights_hash", record.weights_hash);
  if (record.fallback.has_value()) json.set("fallback", profile_json(*record.fallback));
  return write_file_atomically(path, json.dump() + "\n", 0600);
}

Result<EngineRecord> read_engine_record(const std::string& path) {
  TRY_ASSIGN(const std::string file, read_small_file(path, kRecordBytesMax));
  TRY_ASSIGN(const Json json, parse_json(file));
  EngineRecord record;
  TRY_ASSIGN(record.pid, integer(json, path, "pid"));
  TRY_ASSIGN(record.start_ticks, integer(json, path, "start_ticks"));
  TRY_ASSIGN(record.config_hash, text(json, path, "config_hash"));
  TRY_ASSIGN(record.instance_id, text(json, path, "instance_id"));
  TRY_ASSIGN(record.weights_hash, text(json, path, "weights_hash"));
  if (const Json* fallback = json.find("fallback"); fallback != nullptr) {
    TRY_ASSIGN(record.fallback, read_profile(*fallback, path));
  }
  return record;
}

}  // namespace tandem::service
