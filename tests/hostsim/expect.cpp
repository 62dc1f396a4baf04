#include "tests/hostsim/expect.h"

#include <algorithm>

namespace tandem_tests {

using tandem::Json;

namespace {

// A text that begins with ~ is looked for inside; {"lt": x} and {"gt": x} bound a number; everything
// else is equal.
bool fits(const Json& pattern, const Json& value) {
  if (pattern.is_object()) {
    if (!value.is_number()) return false;
    const Json* less = pattern.find("lt");
    const Json* more = pattern.find("gt");
    const bool under = less == nullptr || (less->is_number() && value.as_double() < less->as_double());
    const bool over = more == nullptr || (more->is_number() && value.as_double() > more->as_double());
    return under && over;
  }
  if (pattern.is_number()) return value.is_number() && value.as_double() == pattern.as_double();
  if (pattern.is_string() && pattern.as_string().starts_with("~")) {
    return value.is_string() && value.as_string().find(pattern.as_string().substr(1)) != std::string::npos;
  }
  return pattern == value;
}

bool fits_record(const Json& pattern, const Json& record) {
  return std::all_of(pattern.as_object().begin(), pattern.as_object().end(), [&](const Json::Member& member) {
    const Json* value = record.find(member.first);
    return value != nullptr && fits(member.second, *value);
  });
}

std::string check_match(const Expectation& e, const std::vector<SimRecord>& records) {
  int64_t count = 0;
  for (const SimRecord& r : records) {
    if (r.at_ms >= e.from_ms && r.at_ms <= e.to_ms && fits_record(e.pattern, r.fields)) ++count;
  }
  if (count >= e.count_min && count <= e.count_max) return {};
  const std::string most = e.count_max == INT64_MAX ? "" : " to " + std::to_string(e.count_max);
  return e.pattern.dump() + " happened " + std::to_string(count) + " times, expected " +
         std::to_string(e.count_min) + most;
}

std::string check_order(const Expectation& e, const std::vector<SimRecord>& records) {
  auto from = records.begin();
  for (const Json& pattern : e.order) {
    from = std::find_if(from, records.end(),
                        [&](const SimRecord& r) { return fits_record(pattern, r.fields); });
    if (from == records.end()) return pattern.dump() + " did not happen in this order";
    ++from;
  }
  return {};
}

std::string check_state(const Expectation& e, const Simulation& simulation) {
  const SimStates* states = simulation.states_at(e.from_ms);
  for (const auto& [key, wanted] : e.pattern.as_object()) {
    const auto found = states == nullptr ? SimStates::const_iterator{} : states->find(key);
    if (states == nullptr || found == states->end()) return key + " is not known at that time";
    if (!fits(wanted, Json(found->second))) {
      return key + " was " + found->second + ", expected " + wanted.dump();
    }
  }
  return {};
}

}  // namespace

std::vector<std::string> mismatches(const Script& script, const Simulation& simulation) {
  std::vector<std::string> out;
  for (const Expectation& e : script.expectations) {
    std::string text;
    switch (e.kind) {
      case Expectation::Kind::match: text = check_match(e, simulation.records()); break;
      case Expectation::Kind::order: text = check_order(e, simulation.records()); break;
      case Expectation::Kind::state: text = check_state(e, simulation); break;
    }
    if (!text.empty()) out.push_back("line " + std::to_string(e.line) + ": " + text);
  }
  return out;
}

}  // namespace tandem_tests
