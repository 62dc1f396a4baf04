// The runner itself: a case that was altered must fail. TANDEM_SOURCE_DIR names the tree.
#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/policies/case_check.h"
#include "tests/support/catch.h"

using tandem::Json;
namespace policies = tandem::policies;

namespace {

std::vector<Json> worked_cases() {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  std::ifstream file(std::string(root == nullptr ? "." : root) +
                     "/tests/policies/cases/sanitizer.jsonl");
  std::vector<Json> cases;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) cases.push_back(tandem::parse_json(line).value());
  }
  return cases;
}

bool alter_scalar(Json& value) {
  if (value.is_string()) {
    value = Json(value.as_string() + "x");
  } else if (value.is_integer()) {
    value = Json(value.as_integer() + 1);
  } else if (value.is_number()) {
    value = Json(value.as_double() + 0.125);
  } else if (value.is_bool()) {
    value = Json(!value.as_bool());
  } else {
    return false;
  }
  return true;
}

// Alters the scalar number `wanted` (counted down); false when there are fewer.
bool alter_at(Json& value, size_t& wanted) {
  if (value.is_array()) {
    for (Json& item : value.as_array()) {
      if (alter_at(item, wanted)) return true;
    }
    return false;
  }
  if (value.is_object()) {
    for (auto& member : value.as_object()) {
      if (alter_at(member.second, wanted)) return true;
    }
    return false;
  }
  if (value.is_null() || wanted-- > 0) return false;
  return alter_scalar(value);
}

bool fails(const Json& test_case) { return !policies::check_case(test_case).empty(); }

}  // namespace

TEST_CASE("an altered expectation fails its case", "[cases]") {
  const std::vector<Json> cases = worked_cases();
  REQUIRE(cases.size() > 100);
  size_t altered = 0;
  for (const Json& test_case : cases) {
    for (const auto& [key, value] : test_case.find("expected")->as_object()) {
      if (key == "constraints" || key == "absent" || key == "never_in_content_deltas") continue;
      // One scalar of each key, another one in each case: the whole set covers every kind of place.
      size_t wanted = altered % 7;
      Json changed = test_case;
      Json& place = *changed.find("expected")->find(key);
      bool done = alter_at(place, wanted);
      if (!done) {
        wanted = 0;
        done = alter_at(place, wanted);
      }
      if (!done) continue;
      ++altered;
      INFO(test_case.find("id")->as_string() << " " << key << " " << changed.dump());
      CHECK(fails(changed));
    }
  }
  REQUIRE(altered > 200);
}

TEST_CASE("a key of send that is listed as absent fails its case", "[cases]") {
  size_t altered = 0;
  for (Json test_case : worked_cases()) {
    Json& expected = *test_case.find("expected");
    const Json* send = expected.find("send");
    if (send == nullptr || send->as_object().empty()) continue;
    expected.set("absent", Json(Json::Array{Json(send->as_object().front().first)}));
    INFO(test_case.find("id")->as_string());
    CHECK(fails(test_case));
    ++altered;
  }
  REQUIRE(altered > 50);
}

TEST_CASE("what the runner does not know fails the case", "[cases]") {
  for (const Json& test_case : worked_cases()) {
    for (const char* part : {"input", "expected"}) {
      Json changed = test_case;
      changed.find(part)->set("not_a_known_key", Json(1));
      INFO(test_case.find("id")->as_string() << " " << part);
      CHECK(fails(changed));
    }
    Json kind = test_case;
    kind.set("kind", Json("another"));
    CHECK(fails(kind));
  }
}
