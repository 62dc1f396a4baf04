// The restart machine on a small model of a host: two models with sizes, load times and bad habits, caches,
// and a log of every command. What must never happen is REQUIREd as the commands are carried out.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>

#include "memory_budget/restart.h"
#include "tests/support/catch.h"

namespace tandem::budget {

inline int64_t gib(double n) { return static_cast<int64_t>(n * static_cast<double>(kGiB)); }

inline const Profile kDefault{.name = "main", .peak_bytes = gib(55), .steady_bytes = gib(53)};
inline const Profile kOptional{.name = "kv8", .peak_bytes = gib(37), .steady_bytes = gib(35)};
inline const Profile kSmall{.name = "kv4", .peak_bytes = gib(30), .steady_bytes = gib(28)};

struct RestartProcess {
  bool alive = false;
  int64_t bytes = 0;
  int64_t ready_at_ms = -1;
  bool ignores_term = false;
  bool never_dies = false;
  bool never_starts = false;
  bool fails = false;         // ends by itself a second after its start
  int64_t release_ms = 0;     // from its end to its memory
  std::multimap<int64_t, int64_t> releasing;  // when -> bytes
};

struct RestartWorld {
  RestartMachine machine{floors_for(gib(121.7)), RestartTimes{}};
  HostSight sight;
  int64_t idle_bytes = gib(115);
  int64_t hog_bytes = 0;
  int64_t cache_bytes = gib(2);
  int64_t blocks = 10'000;
  std::array<RestartProcess, kRoleCount> processes;
  std::vector<std::string> log;
  std::set<std::string> open;  // incidents
  std::map<std::string, std::string> texts;
  bool answers_reclaim = true;
  bool drops = true;          // the helper is there
  int64_t stays_bytes = 0;    // of the cache, after a drop
  int failures = 0;

  RestartWorld() {
    machine.set_profile(Role::default_model, kDefault, {});
    machine.set_profile(Role::optional_model, kOptional, kSmall);
    sight.big_blocks_min = 700;
  }
  RestartProcess& process(Role role) { return processes[role_index(role)]; }
  RestartProcess& optional_process() { return process(Role::optional_model); }
  void end(Role role) {
    RestartProcess& p = process(role);
    if (!p.alive) return;
    p.alive = false;
    p.releasing.emplace(sight.now_ms + p.release_ms, p.bytes);
    p.bytes = 0;
  }
  void look() {
    int64_t held = hog_bytes;
    for (size_t i = 0; i < kRoleCount; ++i) {
      RestartProcess& p = processes[i];
      while (!p.releasing.empty() && p.releasing.begin()->first <= sight.now_ms) {
        p.releasing.erase(p.releasing.begin());
      }
      held += p.bytes;
      for (const auto& [when, bytes] : p.releasing) held += bytes;
      TenantSight& seen = sight.tenants[i];
      seen.alive = p.alive;
      seen.ready = p.alive && p.ready_at_ms >= 0 && sight.now_ms >= p.ready_at_ms;
      seen.footprint_bytes = p.bytes;
    }
    sight.available_bytes = std::max<int64_t>(0, idle_bytes - held);
    sight.free_bytes = std::max<int64_t>(0, sight.available_bytes - cache_bytes);
    sight.big_blocks = blocks;
  }
  void carry_out(const Command& c) {
    RestartProcess& p = process(c.role);
    const std::string what = c.kind == CommandKind::raise_incident ? std::string("raise ") + incident_name(c.incident)
                             : c.kind == CommandKind::clear_incident
                                 ? std::string("clear ") + incident_name(c.incident)
                             : c.kind == CommandKind::start ? "start " + c.profile.name
                                                            : command_name(c.kind);
    log.push_back(std::string(role_name(c.role)) + " " + what);
    const std::string key = std::string(role_name(c.role)) + " " + incident_name(c.incident);
    if (c.kind == CommandKind::raise_incident) {
      REQUIRE(open.insert(key).second);  // raised once
      REQUIRE_FALSE(c.text.empty());
      texts[key] = c.text;
    }
    if (c.kind == CommandKind::clear_incident) REQUIRE(open.erase(key) == 1);
    if (c.kind == CommandKind::start && !p.never_starts) {
      for (const RestartProcess& other : processes) {  // one at a time
        REQUIRE((!other.alive || (other.ready_at_ms >= 0 && other.ready_at_ms <= sight.now_ms)));
      }
      p.alive = true;
      p.bytes = c.profile.steady_bytes;
      p.ready_at_ms = sight.now_ms + 60'000;
    }
    if (c.kind == CommandKind::terminate_group && !p.ignores_term && !p.never_dies) end(c.role);
    if (c.kind == CommandKind::kill_group && !p.never_dies) end(c.role);
    if (c.kind == CommandKind::reclaim) {
      REQUIRE_FALSE(p.alive);  // never drop before stop
      if (drops) cache_bytes = stays_bytes;
      if (answers_reclaim) machine.reclaim_done(drops);
    }
  }
  void run_s(int64_t seconds) {
    for (int64_t i = 0; i < seconds * 4; ++i) {
      sight.now_ms += 250;
      for (size_t r = 0; r < kRoleCount; ++r) {
        RestartProcess& p = processes[r];
        if (p.fails && p.alive && sight.now_ms >= p.ready_at_ms - 59'000 && sight.now_ms < p.ready_at_ms) {
          machine.start_failed(static_cast<Role>(r), ++failures == 1 ? "out of memory at capture" : "device busy", false);
          end(static_cast<Role>(r));
        }
      }
      look();
      for (const Command& c : machine.step(sight)) carry_out(c);
    }
  }
  void boot() {
    machine.request_start(Role::default_model);
    machine.request_start(Role::optional_model);
    run_s(200);
    REQUIRE(machine.state(Role::default_model) == RunState::running);
    REQUIRE(machine.state(Role::optional_model) == RunState::running);
    log.clear();
  }
  RunState state() { return machine.state(Role::optional_model); }
  int64_t count(const std::string& line) { return std::count(log.begin(), log.end(), line); }
};

}  // namespace tandem::budget
