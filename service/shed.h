// Shedding (rule U14): from the guard's set of steps to what they mean here, one step after the other,
// engaged first to last and released last to first. Limits of new work are the tenants' own; what needs
// an engine's answer or a disk goes through ShedActs, which waits for nobody.
//
// One step has nothing to act on yet: pause_background (no indexer or download runs in this service).
// optional_freeze_growth is a rule that the
// budget commands ask about (Pressure::growth_frozen).
//
// One thread calls everything.
#pragma once

#include <cstdint>
#include <string>

#include "memory_budget/levels.h"
#include "service/generation.h"
#include "service/tenant.h"

namespace tandem::service {

// The slow or far-reaching ends of the steps. None of them may wait.
class ShedActs {
 public:
  virtual ~ShedActs() = default;
  // What the engine of a role is to run with from now on, told until it says so; also to one that
  // starts later. chunk_tokens 0: no limit.
  virtual void tell_engine(Role role, int64_t slots, int64_t chunk_tokens) = 0;
  // The prefix cache of a role's engine is dropped and kept empty, or may fill again; told in the same way.
  virtual void drop_prefixes(Role role, bool drop) = 0;
  // The optional model is stopped in order, or may start again.
  virtual void stop_optional() = 0;
  virtual void start_optional() = 0;
  // Gives the page cache of model files that nobody serves from back to the kernel.
  virtual void advise_clean_cache() = 0;
  // A step that was engaged or released, for logs and metrics.
  virtual void note(budget::ShedStep step, bool engage) = 0;
};

// The optional model is held off while a step says so, and comes back by itself afterwards; one that an
// administrator had stopped before, or started meanwhile, is not touched. Pure.
class OptionalHold {
 public:
  enum class Act : uint8_t { none, stop, start };
  // `now_ms` of a monotonic clock; an act that had no effect yet is repeated once a second.
  Act step(bool off_wanted, ModelState state, int64_t now_ms);
  [[nodiscard]] bool holds() const { return held_; }

 private:
  bool off_ = false;   // wanted in the last step
  bool held_ = false;  // we stopped it
  int64_t acted_ms_ = -1;
};

class Shedder {
 public:
  // `optional_tenant` may be null. `batch_tokens` are the configured rows of a step, per role.
  Shedder(Tenant& default_tenant, Tenant* optional_tenant, ShedActs& acts, int64_t default_batch_tokens,
          int64_t optional_batch_tokens);

  // Called again and again with what holds now; `why` stands in refusals.
  void follow(budget::ShedSet set, budget::Level level, const std::string& why, int64_t now_ms);
  [[nodiscard]] budget::ShedSet engaged() const { return engaged_; }
  [[nodiscard]] bool optional_held() const { return hold_.holds(); }

 private:
  struct Side {
    Tenant* tenant = nullptr;
    Role role = Role::default_model;
    int64_t batch_tokens = 0;
    TenantLimits limits;
    int64_t told_slots = 0;  // 0: the engine was told nothing
    int64_t told_chunk = 0;
  };
  void act(const budget::ShedChange& change);
  void follow_limits(Side& side, budget::Level level, const std::string& why);
  void follow_engine(Side& side);

  ShedActs& acts_;
  Side default_;
  Side optional_;
  budget::ShedSet engaged_ = 0;
  OptionalHold hold_;
};

}  // namespace tandem::service
