#include "tests/hostsim/script.h"

#include <algorithm>
#include <iterator>

namespace tandem_tests {

using tandem::Errc;
using tandem::Error;
using tandem::Json;
using tandem::make_error;
using tandem::Result;

namespace {

// Every "do" of an event, and the keys beside "at" and "do" that it may have.
struct EventForm {
  std::string_view what;
  std::vector<std::string_view> keys;
};

const std::vector<EventForm>& event_forms() {
  static const std::vector<EventForm> forms = {
      {"start", {"who"}},
      {"stop", {"who"}},
      {"restart", {"who"}},
      {"exit", {"who"}},
      {"profile", {"who", "profile", "known_good"}},
      {"budget", {"who", "kv", "slots", "force"}},
      {"grow", {"who", "to", "over_s"}},
      {"available", {"who", "to", "over_s"}},
      {"cache", {"to", "over_s"}},
      {"psi", {"some", "full"}},
      {"psi_trigger", {}},
      {"nvrm", {"lines"}},
      {"stalls", {"kind", "per_s", "over_s"}},
      {"swap_in", {"per_s", "over_s"}},
      {"blocks", {"to", "compacted"}},
      {"canary", {"percent", "bandwidth", "busy"}},
      {"process",
       {"who", "load_s", "drain_s", "term_s", "release_s", "stuck", "ignores_term", "undead", "child",
        "fails", "fail_after_s", "fail_error", "fail_first_query"}},
      {"unspent", {"who", "to"}},
      {"drop_caches", {}},
      {"heavy_work", {"name"}},
  };
  return forms;
}

Result<SimHostSetup> parse_host(const Json& object) {
  if (!object.is_object()) return make_error(Errc::invalid_argument, "host must be an object");
  Fields f(object);
  SimHostSetup host;
  host.cache_bytes = int64_t{2} << 30;
  TRY(f.bytes("total", host.total_bytes));
  if (host.total_bytes == 0) return make_error(Errc::invalid_argument, "host needs total");
  host.idle_available_bytes = host.total_bytes / 1000 * 945;
  TRY(f.bytes("idle_available", host.idle_available_bytes));
  TRY(f.bytes("cache", host.cache_bytes));
  TRY(f.integer("big_blocks", host.big_blocks));
  TRY(f.integer("big_blocks_min", host.big_blocks_min));
  host.big_blocks_compacted = host.big_blocks;
  TRY(f.integer("big_blocks_compacted", host.big_blocks_compacted));
  TRY(f.finish());
  if (host.idle_available_bytes > host.total_bytes) {
    return make_error(Errc::invalid_argument, "idle_available is above total");
  }
  return host;
}

Result<SimTenant> parse_tenant(const Json& object) {
  if (!object.is_object()) return make_error(Errc::invalid_argument, "tenant must be an object");
  Fields f(object);
  SimTenant tenant;
  std::string role;
  TRY(f.text("role", role));
  TRY_ASSIGN(tenant.role, parse_role(role));
  const Json* profile = f.raw("profile");
  if (profile == nullptr) return make_error(Errc::invalid_argument, "a tenant needs a profile");
  TRY_ASSIGN(tenant.profile, parse_profile(*profile));
  if (const Json* good = f.raw("known_good")) {
    TRY_ASSIGN(tenant.known_good, parse_profile(*good));
  }
  TRY(parse_behaviour(f, tenant.behaviour));
  TRY(f.flag("running", tenant.running));
  TRY(f.flag("wanted", tenant.wanted));
  TRY(f.bytes("unspent", tenant.unspent_bytes));
  TRY(f.bytes("mapped", tenant.mapped_bytes));
  TRY(f.bytes("load_cache", tenant.load_cache_bytes));
  TRY(f.finish());
  return tenant;
}

Result<SimEvent> parse_event(const Json& line) {
  SimEvent event;
  Fields f(line);
  TRY(f.seconds("at", event.at_ms));
  TRY(f.text("do", event.what));
  const auto& forms = event_forms();
  const auto form = std::find_if(forms.begin(), forms.end(),
                                 [&](const EventForm& each) { return each.what == event.what; });
  if (form == forms.end()) {
    return make_error(Errc::invalid_argument, "unknown event \"" + event.what + "\"");
  }
  for (const std::string_view key : form->keys) f.raw(key);
  TRY(f.finish());
  event.fields = line;
  return event;
}

Result<Expectation> parse_expectation(const Json& line) {
  Fields f(line);
  Expectation e;
  if (const Json* pattern = f.raw("expect")) {
    e.pattern = *pattern;
    TRY(f.seconds("from", e.from_ms));
    TRY(f.seconds("to", e.to_ms));
    TRY(f.integer("min", e.count_min));
    TRY(f.integer("max", e.count_max));
    if (f.has("count")) {
      TRY(f.integer("count", e.count_min));
      e.count_max = e.count_min;
    }
    if (e.count_max < e.count_min) e.count_min = e.count_max;
  } else if (const Json* order = f.raw("expect_order")) {
    e.kind = Expectation::Kind::order;
    if (!order->is_array()) return make_error(Errc::invalid_argument, "expect_order must be a list");
    e.order = order->as_array();
    for (const Json& item : e.order) {
      if (!item.is_object()) return make_error(Errc::invalid_argument, "expect_order holds objects");
    }
    TRY(f.finish());
    return e;
  } else {
    e.kind = Expectation::Kind::state;
    e.pattern = *f.raw("expect_state");
    TRY(f.seconds("at", e.from_ms));
    if (!f.has("at")) return make_error(Errc::invalid_argument, "expect_state needs at");
  }
  TRY(f.finish());
  if (!e.pattern.is_object()) return make_error(Errc::invalid_argument, "a pattern must be an object");
  return e;
}

Result<void> parse_line(const Json& line, size_t number, Script& script, bool& has_host) {
  if (!line.is_object()) return make_error(Errc::invalid_argument, "a line must be an object");
  if (line.find("note") != nullptr && line.as_object().size() == 1) return {};
  if (const Json* host = line.find("host")) {
    TRY_ASSIGN(script.host, parse_host(*host));
    has_host = true;
    return {};
  }
  if (!has_host) return make_error(Errc::invalid_argument, "the first line must be the host");
  if (const Json* tenant = line.find("tenant")) {
    TRY_ASSIGN(SimTenant parsed, parse_tenant(*tenant));
    for (const SimTenant& other : script.tenants) {
      if (other.role == parsed.role) return make_error(Errc::invalid_argument, "a role twice");
    }
    script.tenants.push_back(std::move(parsed));
  } else if (line.find("expect") != nullptr || line.find("expect_order") != nullptr ||
             line.find("expect_state") != nullptr) {
    TRY_ASSIGN(Expectation expectation, parse_expectation(line));
    expectation.line = number;
    script.expectations.push_back(std::move(expectation));
  } else if (line.find("do") != nullptr) {
    TRY_ASSIGN(SimEvent event, parse_event(line));
    event.line = number;
    script.events.push_back(std::move(event));
  } else if (line.find("end") != nullptr) {
    Fields f(line);
    TRY(f.seconds("end", script.end_ms));
    return f.finish();
  } else {
    return make_error(Errc::invalid_argument,
                      "a line has one of note, host, tenant, do, expect, expect_order, expect_state, end");
  }
  return {};
}

}  // namespace

Result<Script> parse_script(std::string_view text) {
  Script script;
  bool has_host = false;
  size_t number = 0;
  const auto at_line = [&number](Error error) {
    error.message = "line " + std::to_string(number) + ": " + error.message;
    return error;
  };
  while (!text.empty()) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto json = tandem::parse_json(line);
    if (!json.ok()) return at_line(json.error());
    if (auto ok = parse_line(*json, number, script, has_host); !ok.ok()) return at_line(ok.error());
  }
  if (!has_host) return make_error(Errc::invalid_argument, "no host line");
  std::stable_sort(script.events.begin(), script.events.end(),
                   [](const SimEvent& a, const SimEvent& b) { return a.at_ms < b.at_ms; });
  if (script.end_ms == 0) return make_error(Errc::invalid_argument, "no end line");
  return script;
}

}  // namespace tandem_tests
