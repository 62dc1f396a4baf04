// Typed fields of a script's objects.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "tests/hostsim/script.h"

namespace tandem_tests {

using tandem::Errc;
using tandem::Json;
using tandem::make_error;
using tandem::Result;
using tandem::budget::Role;

namespace {

constexpr double kBytesMax = 1e15;
constexpr double kSecondsMax = 1e7;

Result<int64_t> parse_bytes(const Json& value, std::string_view key) {
  const auto wrong = [&] {
    return make_error(Errc::invalid_argument,
                      std::string(key) + " must be bytes or a text such as \"8GiB\"");
  };
  double number = 0;
  double unit = 1;
  if (value.is_number()) {
    number = value.as_double();
  } else if (value.is_string()) {
    const std::string& text = value.as_string();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return wrong();
    const std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
    if (suffix == "GiB") {
      unit = 1024.0 * 1024 * 1024;
    } else if (suffix == "MiB") {
      unit = 1024.0 * 1024;
    } else if (suffix == "KiB") {
      unit = 1024;
    } else if (!suffix.empty()) {
      return wrong();
    }
  } else {
    return wrong();
  }
  const double bytes = number * unit;
  if (!(bytes >= 0) || bytes > kBytesMax) return wrong();
  return static_cast<int64_t>(std::llround(bytes));
}

}  // namespace

const Json* Fields::raw(std::string_view key) {
  asked_.emplace_back(key);
  return object_.find(key);
}

Result<void> Fields::bytes(std::string_view key, int64_t& out) {
  if (const Json* value = raw(key)) {
    TRY_ASSIGN(out, parse_bytes(*value, key));
  }
  return {};
}

Result<void> Fields::number(std::string_view key, double& out) {
  const Json* value = raw(key);
  if (value == nullptr) return {};
  if (!value->is_number()) {
    return make_error(Errc::invalid_argument, std::string(key) + " must be a number");
  }
  out = value->as_double();
  return {};
}

Result<void> Fields::seconds(std::string_view key, int64_t& out_ms) {
  if (!has(key)) {
    raw(key);
    return {};
  }
  double seconds = 0;
  TRY(number(key, seconds));
  if (!(seconds >= 0) || seconds > kSecondsMax) {
    return make_error(Errc::invalid_argument, std::string(key) + " must be seconds from 0 to 1e7");
  }
  out_ms = static_cast<int64_t>(std::llround(seconds * 1000));
  return {};
}

Result<void> Fields::integer(std::string_view key, int64_t& out) {
  const Json* value = raw(key);
  if (value == nullptr) return {};
  if (!value->is_integer() || value->as_integer() < 0 || value->as_integer() > int64_t{1} << 40) {
    return make_error(Errc::invalid_argument, std::string(key) + " must be a whole number, 0 or more");
  }
  out = value->as_integer();
  return {};
}

Result<void> Fields::text(std::string_view key, std::string& out) {
  const Json* value = raw(key);
  if (value == nullptr) return {};
  if (!value->is_string()) {
    return make_error(Errc::invalid_argument, std::string(key) + " must be a text");
  }
  out = value->as_string();
  return {};
}

Result<void> Fields::flag(std::string_view key, bool& out) {
  const Json* value = raw(key);
  if (value == nullptr) return {};
  if (!value->is_bool()) {
    return make_error(Errc::invalid_argument, std::string(key) + " must be true or false");
  }
  out = value->as_bool();
  return {};
}

Result<void> Fields::finish() const {
  for (const auto& [key, value] : object_.as_object()) {
    if (key == "note") continue;  // may stand on every line
    if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) {
      return make_error(Errc::invalid_argument, "unknown key " + key);
    }
  }
  return {};
}

Result<Role> parse_role(std::string_view name) {
  if (name == "default") return Role::default_model;
  if (name == "optional") return Role::optional_model;
  return make_error(Errc::invalid_argument,
                    "a tenant is \"default\" or \"optional\", not \"" + std::string(name) + "\"");
}

Result<SimProfile> parse_profile(const Json& object) {
  if (!object.is_object()) return make_error(Errc::invalid_argument, "a profile must be an object");
  Fields f(object);
  SimProfile out;
  out.profile.name = "profile";
  out.profile.slots = 4;
  int64_t overhead = 0;
  int64_t peak = 0;
  TRY(f.text("name", out.profile.name));
  TRY(f.bytes("kv", out.profile.kv_bytes));
  TRY(f.integer("slots", out.profile.slots));
  TRY(f.bytes("weights", out.weights_bytes));
  TRY(f.bytes("overhead", overhead));
  TRY(f.bytes("peak", peak));
  out.weights_bytes += overhead;
  out.profile.steady_bytes = out.weights_bytes + out.profile.kv_bytes;
  out.profile.peak_bytes = std::max(peak, out.profile.steady_bytes);
  out.actual_peak_bytes = out.profile.peak_bytes;
  TRY(f.bytes("actual_peak", out.actual_peak_bytes));
  out.actual_peak_bytes = std::max(out.actual_peak_bytes, out.profile.steady_bytes);
  TRY(f.finish());
  if (out.weights_bytes == 0) return make_error(Errc::invalid_argument, "a profile needs weights");
  return out;
}

Result<void> parse_behaviour(Fields& f, Behaviour& out) {
  TRY(f.seconds("load_s", out.load_ms));
  TRY(f.seconds("drain_s", out.drain_ms));
  TRY(f.seconds("term_s", out.term_ms));
  TRY(f.seconds("release_s", out.release_ms));
  TRY(f.bytes("stuck", out.stuck_bytes));
  TRY(f.flag("ignores_term", out.ignores_term));
  TRY(f.flag("undead", out.undead));
  TRY(f.flag("child", out.child));
  TRY(f.integer("fails", out.fails));
  TRY(f.seconds("fail_after_s", out.fail_after_ms));
  TRY(f.text("fail_error", out.fail_error));
  return f.flag("fail_first_query", out.fail_first_query);
}

}  // namespace tandem_tests
