// The commands of the admin socket: JSON in, JSON out, over the supervisor, the keys and the
// configuration. What tandemctl prints with --json is what stands here. Called on the admin thread;
// no command waits longer than a fraction of a second.
#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
#include "service/admin_server.h"
#include "service/budget_keeper.h"
#include "service/canary.h"
#include "service/config.h"
#include "service/incident_keeper.h"
#include "service/key_ring.h"
#include "service/pressure.h"
#include "service/store/store.h"
#include "service/supervisor.h"

namespace tandem::service {

class AdminCommands {
 public:
  struct Services {
    const Config& config;
    const Clock& clock;
    Supervisor& supervisor;
    KeyRing& keys;
    Store& store;
    BudgetKeeper& budgets;
    IncidentKeeper& incidents;
    Canary& canary;
    std::string address;                      // "http://127.0.0.1:8080"
    std::function<Pressure()> pressure;       // of the host's memory
    std::function<Json()> pacing;             // of the optional model; null where it is not paced
    std::function<int64_t()> active_answers;  // of the HTTP layer
    std::function<void()> shut_down;          // asks the main thread to stop
  };
  explicit AdminCommands(Services services);

  // `peer`: the user who asks, for what is recorded.
  Result<Json> run(const std::string& command, const Json& request, const AdminServer::Peer& peer);

 private:
  Result<Json> status(const Json& request);
  Result<Json> model_show(const Json& request);
  Result<Json> model_command(const Json& request, ModelCommand command);
  Result<Json> key_add(const Json& request);
  Result<Json> key_list();
  Result<Json> key_revoke(const Json& request);
  Result<Json> config_show();
  Result<Json> budget(const std::string& command, const Json& request, const AdminServer::Peer& peer);
  Result<Json> budget_change(const Json& request, const AdminServer::Peer& peer, bool undo);
  Result<Json> budget_history(const Json& request);
  [[nodiscard]] Json models(bool with_facts);
  Result<Tenant*> tenant(const Json& request);

  const Services services_;
  const SteadyTime started_;
};

}  // namespace tandem::service
