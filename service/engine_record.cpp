#include "service/engine_record.h"

#include "base/json.h"
#include "service/atomic_file.h"

namespace tandem::service {
namespace {

constexpr size_t kRecordBytesMax = 4096;

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

}  // namespace

Result<void> write_engine_record(const std::string& path, const EngineRecord& record) {
  Json json = Json::object();
  json.set("pid", record.pid)
      .set("start_ticks", record.start_ticks)
      .set("config_hash", record.config_hash)
      .set("instance_id", record.instance_id)
      .set("weights_hash", record.weights_hash);
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
  return record;
}

}  // namespace tandem::service
