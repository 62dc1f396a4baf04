// The commands "incident.list" and "incident.ack" of the admin socket. Called on the admin thread.
//
//   incident.list {open?: bool, since_s?: seconds back, limit?: 1..1000}
//     -> {incidents: [...], complete: bool, reason?: text, open: how many are open}
//   incident.ack {id} -> {incident: {...}}
//
// Errors: invalid_argument with the field, not_found, those of the store.
#pragma once

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
#include "service/incident_keeper.h"

namespace tandem::service {

Json incident_json(const IncidentRow& row);
Result<Json> list_incidents(IncidentKeeper& keeper, const Clock& clock, const Json& request);
Result<Json> acknowledge_incident(IncidentKeeper& keeper, const Json& request);

}  // namespace tandem::service
