// IncidentWatch: looks at the store every second and asks each ready engine every five seconds, on one
// thread of its own, and lets the policies of service/incident_policies.h raise what is wrong. An
// engine that hangs costs it a second a look.
//
// start() and the destructor by the owner; the services outlive it.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "service/incident_policies.h"
#include "service/store/store.h"
#include "service/supervisor.h"

namespace tandem::service {

class IncidentWatch {
 public:
  struct Options {
    std::string state_dir;                    // whose disk is looked at
    std::string root;                         // of /proc; empty: the real one
    std::chrono::milliseconds silence_limit;  // 0: silence is not looked at
  };
  IncidentWatch(Options options, Store& store, Supervisor& supervisor, IncidentSink& sink,
                const Clock& clock);
  ~IncidentWatch();
  IncidentWatch(const IncidentWatch&) = delete;
  IncidentWatch& operator=(const IncidentWatch&) = delete;

  void start();
  void look_at_store();
  void look_at_engines();

 private:
  [[nodiscard]] EngineLook look_at(Tenant& tenant) const;
  void run(const std::stop_token& stop);

  const Options options_;
  Store& store_;
  Supervisor& supervisor_;
  const Clock& clock_;
  StoreWatch store_watch_;
  std::vector<std::unique_ptr<EngineWatch>> engine_watches_;  // as the supervisor's tenants
  Mutex mutex_;
  CondVar stopped_;
  std::jthread thread_;
};

}  // namespace tandem::service
