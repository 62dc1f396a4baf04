// What tandemctl top makes of two answers of tandemd.
#include <string>

#include "service/ctl/answer_fields.h"
#include "service/ctl/top.h"
#include "tests/support/catch.h"

namespace tandem::service::ctl {
namespace {

Json answer_of(const char* text) {
  auto json = parse_json(text);
  REQUIRE(json.ok());
  return std::move(*json);
}

const char* const kBefore = R"({"models":[
  {"name":"a","role":"default","instance":"1","stats":{"completion_tokens":100,"prompt_tokens":0,
   "lease_units":5,"lease_served_us":1000000,"lease_waits":10,"step_us_total":7}},
  {"name":"b","role":"optional","instance":"1","stats":{"completion_tokens":50,"step_us_total":0}}]})";
const char* const kNow = R"({"version":"1","uptime_s":3725,"ready":true,"active_answers":2,"streams_max":8,
  "incidents_open":0,"memory":{"level":"yellow","available_bytes":1073741824,
  "floors":{"yellow":{"enter":2147483648}},"shed":["halve_slots"]},"models":[
  {"name":"a","role":"default","state":"ready","instance":"1","slots":4,"slots_busy":1,"queue":3,"queue_max":64,
   "inter_token_p50_us":15500,"inter_token_p95_us":18000,
   "stats":{"completion_tokens":220,"prompt_tokens":0,"lease_units":9,"lease_served_us":2700000,"lease_waits":30,
   "lease_wait_p50_us":900,"lease_wait_p99_us":3000,"kv_pages_total":100,"kv_pages_owned":10,
   "kv_pages_cached":5,"kv_page_bytes":1048576}},
  {"name":"b","role":"optional","state":"ready","instance":"2","message":"was restarted",
   "stats":{"completion_tokens":5,"step_us_total":9}}]})";

TEST_CASE("rates are of the time between two answers") {
  const Json figures = top_figures(answer_of(kBefore), answer_of(kNow), 2.0);
  const Json::Array& models = array(figures, "models");
  REQUIRE(models.size() == 2);
  CHECK(models[0].find("tokens_per_s")->as_double() == 60.0);
  CHECK(models[0].find("device_share")->as_double() == 0.85);
  CHECK(models[0].find("lease_waits_per_s")->as_double() == 10.0);
  // Another process: its counters began anew.
  CHECK(models[1].find("tokens_per_s")->is_null());
  CHECK(models[1].find("device_share")->is_null());
}

TEST_CASE("how the two share the device: the lease's quantum, or the stage of pacing") {
  const auto shown = [](const char* now) { return top_text(top_figures(Json::object(), answer_of(now), 1.0)); };
  const std::string leased = shown(R"({"models":[{"role":"default","name":"a","stats":{"lease_quantum_us":2400}}],"pacing":null})");
  CHECK(leased.find("lease: quantum 2.4 ms") != std::string::npos);
  CHECK(leased.find("pacing") == std::string::npos);
  const std::string paced = shown(R"({"models":[],"pacing":{"stage":4,"requests_max":0,"prompt_tokens_max":128}})");
  CHECK(paced.find("lease: ") == std::string::npos);
  CHECK(paced.find("pacing of the optional model: stage 4, at most 0 requests, prompts of 128 tokens") != std::string::npos);
  const std::string free = shown(R"({"models":[],"pacing":{"stage":0,"requests_max":null,"prompt_tokens_max":null}})");
  CHECK(free.find("stage 0\n") != std::string::npos);
}

TEST_CASE("without a lease the time in steps says how busy an engine is") {
  const Json before = answer_of(R"({"models":[{"name":"a","instance":"1","stats":{"step_us_total":0,"lease_units":0}}]})");
  const Json now = answer_of(R"({"models":[{"name":"a","instance":"1","stats":{"step_us_total":500000,"lease_units":0}}]})");
  CHECK(array(top_figures(before, now, 1.0), "models")[0].find("device_share")->as_double() == 0.5);
}

TEST_CASE("the text has what the figures have, and dashes for the rest") {
  const std::string shown = top_text(top_figures(answer_of(kBefore), answer_of(kNow), 2.0));
  for (const char* part : {"up 1:02:05", "level yellow, 1.0 GiB available; floors: yellow 2.0 GiB; shedding: halve_slots",
                           "3/64", "60.0", "85", "15.5/18.0", "0.9/3.0", "10/5/100", "optional: was restarted"}) {
    INFO(part);
    CHECK(shown.find(part) != std::string::npos);
  }
  CHECK(top_text(top_figures(Json::object(), Json::object(), 0.0)).find("tandemd") == 0);
}

}  // namespace
}  // namespace tandem::service::ctl
