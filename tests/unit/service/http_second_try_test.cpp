// Second tries of an answer: what they are limited to.
#include "service/http/chat_call.h"
#include "tests/unit/service/http_harness.h"

// After the product's headers: it replaces their CHECK.
#include "tests/support/catch.h"

namespace tandem::service {

TEST_CASE("repair: a second try is limited to what was asked, as the first") {
  TestServer server;
  ChatRules rules;
  rules.profile = policies::family_profile("gpt-oss").value();
  rules.settings.unavoidable_reasoning_reserve_tokens = 40;
  FakeModel& model = server.models.first;
  model.set_rules(rules);
  model.script.thoughts = {"a"};
  FakeScript second;
  second.thoughts = {"b"};
  second.tokens = {"one ", "two ", "three"};
  model.next_scripts = {second};
  std::string fields = R"("max_tokens":2)";
  std::string messages = R"([{"role":"user","content":"hi"}])";
  SECTION("R23: nothing but thoughts") { model.script.tokens = {"\n"}; }
  SECTION("R31: not what the schema says") {
    fields += R"(,"response_format":{"type":"json_object"})";
    model.script.tokens = {"no"};
  }
  SECTION("R28: letters of another script") {
    messages = "[{\"role\":\"user\",\"content\":\"\xEC\x82\xAC\xEC\x8B\xA4\"}]";
    model.script.tokens = {"\xEC\x82\xAC\xE9\x99\x88"};
  }
  const Reply reply = ask(server, request("POST", "/v1/chat/completions", "{\"messages\":" + messages + "," + fields + "}"));
  CHECK(model.submitted.load() == 2);
  CHECK(model.last_submit().max_tokens == 42);
  CHECK(model.last_submit().answer_tokens_reserved == 2);
  const Json answer = reply.json();
  const Json& choice = answer.find("choices")->as_array().at(0);
  CHECK(choice.find("message")->find("content")->as_string() == "one two ");
  CHECK(choice.find("finish_reason")->as_string() == "length");
}

}  // namespace tandem::service
