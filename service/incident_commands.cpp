#include "service/incident_commands.h"

#include <string>
#include <utility>

namespace tandem::service {
namespace {

constexpr int64_t kLimitDefault = 50;
constexpr int64_t kLimitMax = 1000;
constexpr int64_t kSinceMax = int64_t{100} * 366 * 24 * 3600;

// Absent is `otherwise`.
Result<int64_t> integer_field(const Json& request, const char* field, int64_t otherwise, int64_t min,
                              int64_t max) {
  const Json* value = request.find(field);
  if (value == nullptr || value->is_null()) return otherwise;
  if (value->is_integer() && value->as_integer() >= min && value->as_integer() <= max) {
    return value->as_integer();
  }
  return make_error(Errc::invalid_argument,
                    std::string("field ") + field + " must be a whole number from " +
                        std::to_string(min) + " to " + std::to_string(max),
                    field);
}

Json time_or_null(int64_t unix_s) { return unix_s == 0 ? Json() : Json(unix_s); }

}  // namespace

Json incident_json(const IncidentRow& row) {
  Json out = Json::object();
  out.set("id", row.id).set("kind", row.kind);
  const auto kind = incident_kind(row.kind);
  if (kind.has_value()) out.set("severity", severity_name(incident_facts(*kind).severity));
  const auto numbers = parse_json(row.numbers);
  out.set("model", row.model)
      .set("open", row.cleared_unix_s == 0)
      .set("text", row.text)
      .set("numbers", numbers.ok() ? *numbers : Json::object())
      .set("raised_at", row.raised_unix_s)
      .set("repeated_at", row.repeated_unix_s)
      .set("repeats", row.repeats)
      .set("cleared_at", time_or_null(row.cleared_unix_s))
      .set("cleared_why", row.cleared_why)
      .set("acknowledged_at", time_or_null(row.acknowledged_unix_s));
  if (kind.has_value()) {
    out.set("meaning", incident_facts(*kind).meaning).set("next", incident_facts(*kind).next);
  }
  return out;
}

Result<Json> list_incidents(IncidentKeeper& keeper, const Clock& clock, const Json& request) {
  IncidentFilter filter;
  TRY_ASSIGN(filter.limit, integer_field(request, "limit", kLimitDefault, 1, kLimitMax));
  TRY_ASSIGN(const int64_t since_s, integer_field(request, "since_s", 0, 0, kSinceMax));
  if (since_s > 0) filter.since_unix_s = clock.unix_seconds() - since_s;
  const Json* open = request.find("open");
  if (open != nullptr && !open->is_bool()) {
    return make_error(Errc::invalid_argument, "field open must be true or false", "open");
  }
  filter.open_only = open != nullptr && open->as_bool();
  IncidentKeeper::List list = keeper.list(filter);
  Json incidents = Json::array();
  for (const IncidentRow& row : list.rows) incidents.push_back(incident_json(row));
  Json out = Json::object();
  out.set("incidents", std::move(incidents))
      .set("open", static_cast<int64_t>(keeper.open_count()))
      .set("complete", list.complete);
  if (!list.complete) out.set("reason", std::move(list.reason));
  return out;
}

Result<Json> acknowledge_incident(IncidentKeeper& keeper, const Json& request) {
  TRY_ASSIGN(const int64_t id, integer_field(request, "id", 0, 1, INT64_MAX));
  if (id == 0) return make_error(Errc::invalid_argument, "field id must be given", "id");
  TRY_ASSIGN(const IncidentRow row, keeper.acknowledge(id));
  return Json::object({{"incident", incident_json(row)}});
}

}  // namespace tandem::service
