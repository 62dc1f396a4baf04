#include "tests/hostsim/host.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace tandem_tests {

using tandem::budget::Holder;
using tandem::budget::kRoleCount;
using tandem::budget::Role;

namespace {

std::string kib(const char* key, int64_t bytes) {
  return std::string(key) + ": " + std::to_string(bytes / 1024) + " kB\n";
}

std::string psi_line(const char* kind, double percent) {
  char text[96];
  std::snprintf(text, sizeof text, "%s avg10=%.2f avg60=%.2f avg300=%.2f total=0\n", kind, percent,
                percent, percent);
  return text;
}

}  // namespace

void SimProcess::set_up(const SimTenant& tenant) {
  behaviour = tenant.behaviour;
  unspent_bytes = tenant.unspent_bytes;
  mapped_bytes = tenant.mapped_bytes;
  load_cache_bytes = tenant.load_cache_bytes;
}

void SimProcess::start(const SimProfile& profile, int64_t now_ms) {
  profile_ = profile;
  leader_ = true;
  child_ = behaviour.child;
  ready_ = false;
  started_ms_ = now_ms;
  term_at_ms_ = -1;
  failing_ = behaviour.fails > 0;
  if (failing_) --behaviour.fails;
  extra = Ramp{};
  now_bytes_ = 0;
}

void SimProcess::adopt(const SimProfile& profile) {
  start(profile, 0);
  failing_ = false;
  ready_ = true;
  now_bytes_ = profile.profile.steady_bytes;
}

// Weights in the first four fifths, then KV and whatever the load needs beyond, then the steady state.
int64_t SimProcess::curve(int64_t now_ms) const {
  if (ready_) return profile_.profile.steady_bytes;
  const double part = behaviour.load_ms == 0 ? 1
                                             : static_cast<double>(now_ms - started_ms_) /
                                                   static_cast<double>(behaviour.load_ms);
  const auto between = [](int64_t a, int64_t b, double x) {
    return a + static_cast<int64_t>(static_cast<double>(b - a) * std::clamp(x, 0.0, 1.0));
  };
  if (part < 0.8) return between(0, profile_.weights_bytes, part / 0.8);
  if (part < 0.9) return between(profile_.weights_bytes, profile_.actual_peak_bytes, (part - 0.8) / 0.1);
  return between(profile_.actual_peak_bytes, profile_.profile.steady_bytes, (part - 0.9) / 0.1);
}

void SimProcess::update(int64_t now_ms) {
  while (!releasing_.empty() && releasing_.front().first <= now_ms) releasing_.pop_front();
  if (leader_ && term_at_ms_ >= 0 && now_ms >= term_at_ms_) end_leader(now_ms, !behaviour.child);
  if (!alive()) return;
  if (leader_ && failing_ && now_ms - started_ms_ >= behaviour.fail_after_ms) {
    failure_ = behaviour.fail_error;
    end_leader(now_ms, !behaviour.child);
    if (!alive()) return;
  }
  if (leader_ && !ready_ && !failing_ && now_ms - started_ms_ >= behaviour.load_ms) ready_ = true;
  // An orphan keeps what the group had.
  if (leader_) now_bytes_ = curve(now_ms) + extra.at(now_ms);
}

std::optional<std::string> SimProcess::take_failure() { return std::exchange(failure_, std::nullopt); }

void SimProcess::terminate(int64_t now_ms) {
  if (!leader_ || behaviour.ignores_term || behaviour.undead || term_at_ms_ >= 0) return;
  term_at_ms_ = now_ms + behaviour.term_ms;
}

void SimProcess::kill(int64_t now_ms) {
  if (!behaviour.undead) end_leader(now_ms, true);
}

void SimProcess::end_leader(int64_t now_ms, bool with_child) {
  leader_ = false;
  ready_ = false;
  if (with_child) child_ = false;
  if (!child_) end_all(now_ms);
}

void SimProcess::end_all(int64_t now_ms) {
  const int64_t stuck = std::min(behaviour.stuck_bytes, now_bytes_);
  stuck_bytes_ += stuck;
  if (now_bytes_ > stuck) releasing_.emplace_back(now_ms + behaviour.release_ms, now_bytes_ - stuck);
  now_bytes_ = 0;
}

int64_t SimProcess::releasing_bytes() const {
  int64_t bytes = stuck_bytes_;
  for (const auto& [when, held] : releasing_) bytes += held;
  return bytes;
}

std::vector<std::pair<std::string, std::string>> SimProcess::stat_and_status(int64_t pid) const {
  std::vector<std::pair<std::string, std::string>> out;
  const auto add = [&](int64_t own, int64_t parent, const char* name, int64_t anon) {
    std::string stat = std::to_string(own) + " (" + name + ") S " + std::to_string(parent) + " " +
                       std::to_string(pid) + " " + std::to_string(pid);
    for (int field = 7; field < 22; ++field) stat += " 0";
    stat += " " + std::to_string(started_ms_ / 10 + 100) + " 0 0\n";
    out.emplace_back(std::move(stat), "Name:\t" + std::string(name) + "\nUid:\t990\t990\t990\t990\n" +
                                          kib("RssAnon", anon));
  };
  if (leader_) add(pid, 1, "engine", child_ ? 0 : now_bytes_);
  if (child_) add(pid + 1, leader_ ? pid : 1, "EngineCore) S 1", now_bytes_);
  return out;
}

SimHost::SimHost(const SimHostSetup& with)
    : setup(with), cache(with.cache_bytes), big_blocks(with.big_blocks) {}

int64_t SimHost::mapped() const {
  int64_t bytes = 0;
  for (const SimProcess& process : processes_) bytes += process.alive() ? process.mapped_bytes : 0;
  return bytes;
}

void SimHost::update(int64_t now_ms) {
  now_ms_ = now_ms;
  int64_t held = 0;
  for (SimProcess& process : processes_) {
    const bool loading = process.loading();
    process.update(now_ms);
    if (loading && process.ready() && process.load_cache_bytes > 0) {
      cache.go(now_ms, cache_now_ + process.load_cache_bytes, 0);
    }
    held += process.held_bytes() + process.releasing_bytes();
  }
  for (const auto& [name, ramp] : outsiders_) held += ramp.at(now_ms);
  available_ = std::max<int64_t>(0, setup.idle_available_bytes - held);
  // Clean cache gives way before anything else does.
  cache_now_ = std::min(cache.at(now_ms), std::max<int64_t>(0, available_ - mapped()));
  if (cache_now_ < cache.at(now_ms)) cache.go(now_ms, cache_now_, 0);
  free_ = std::max<int64_t>(0, available_ - cache_now_ - mapped());
}

void SimHost::reclaim(int64_t now_ms) {
  cache.go(now_ms, 0, 0);
  big_blocks = std::max(big_blocks, setup.big_blocks_compacted);
  update(now_ms);
}

void SimHost::grow_until(const std::string& who, int64_t wanted, int64_t over_ms) {
  const auto role = parse_role(who);
  Ramp& ramp = role.ok() ? process(*role).extra : outsider(who);
  ramp.go(now_ms_, std::max<int64_t>(0, ramp.at(now_ms_) + available_ - wanted), over_ms);
}

std::vector<Holder> SimHost::holders() const {
  std::vector<Holder> out;
  for (size_t i = 0; i < kRoleCount; ++i) {
    const std::string name = std::string(role_name(static_cast<Role>(i))) + " model";
    if (processes_[i].held_bytes() > 0) out.push_back({name, processes_[i].held_bytes()});
    if (processes_[i].releasing_bytes() > 0) {
      out.push_back({"driver, after the " + name, processes_[i].releasing_bytes()});
    }
  }
  for (const auto& [name, ramp] : outsiders_) {
    if (ramp.at(now_ms_) > 0) out.push_back({name, ramp.at(now_ms_)});
  }
  return out;
}

std::string SimHost::meminfo() const {
  int64_t anon = setup.total_bytes - setup.idle_available_bytes;
  for (const auto& [name, ramp] : outsiders_) anon += ramp.at(now_ms_);
  return kib("MemTotal", setup.total_bytes) + kib("MemFree", free_) + kib("MemAvailable", available_) +
         kib("Buffers", 0) + kib("Cached", cache_now_ + mapped()) + kib("SwapTotal", 0) +
         kib("SwapFree", 0) + kib("AnonPages", std::min(anon, setup.total_bytes)) +
         "HugePages_Total: 0\nHugePages_Free: 0\n" + kib("Hugepagesize", 2 << 20);
}

std::string SimHost::pressure() const { return psi_line("some", psi_some) + psi_line("full", psi_full); }

std::string SimHost::buddyinfo() const {
  return "Node 0, zone   Normal 100 100 100 100 100 100 100 100 100 " + std::to_string(big_blocks) + " 0\n";
}

std::string SimHost::vmstat() const {
  return "pswpin " + std::to_string(swap_in_bytes.at(now_ms_) / 4096) + "\npswpout 0\nallocstall_normal " +
         std::to_string(allocstalls.at(now_ms_)) + "\ncompact_fail " +
         std::to_string(compact_fails.at(now_ms_)) + "\n";
}

}  // namespace tandem_tests
