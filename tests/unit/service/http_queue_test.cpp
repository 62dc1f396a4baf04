// What a request says about its queue, and what it is told: priorities, deadlines, positions.
#include "tests/unit/service/http_harness.h"

#include "tests/support/catch.h"

namespace tandem::service {
namespace {

constexpr const char* kBody = R"({"model":"alpha","prompt":"hi","max_tokens":8})";

std::string with_headers(const std::string& headers, const char* body = kBody) {
  return request("POST", "/v1/completions", body, headers);
}

TEST_CASE("an accepted request is told where it stood") {
  TestServer server;
  server.models.first.script.place = {.position = 3, .wait_ms = 1200};
  const Reply whole = ask(server, with_headers(""));
  CHECK(whole.status == 200);
  CHECK(whole.header("x-tandem-queue") == "position=3, wait_ms=1200");
  const Reply streamed = ask(server, with_headers("", R"({"model":"alpha","prompt":"hi","stream":true})"));
  CHECK(streamed.status == 200);
  CHECK(streamed.header("x-tandem-queue") == "position=3, wait_ms=1200");
}

TEST_CASE("priority and deadline come from the headers, else from the key's rules") {
  HttpOptions options = quick_options();
  options.request_deadline_ms = 60'000;
  TestServer plain(options);
  REQUIRE(ask(plain, with_headers("")).status == 200);
  SubmitTerms terms = plain.models.first.last_terms();
  CHECK(terms.queue_class == policies::QueueClass::interactive);
  CHECK(terms.weight == 1.0);
  const std::string key = terms.key_id;
  REQUIRE_FALSE(key.empty());
  REQUIRE(ask(plain, with_headers("x-tandem-priority: batch\r\n")).status == 200);
  CHECK(plain.models.first.last_terms().queue_class == policies::QueueClass::batch);

  options.queue = {.key_weights = {{key, 3.0}}, .batch_keys = {key}, .deadline_ms = 5'000};
  TestServer ruled(options);
  REQUIRE(ask(ruled, with_headers("")).status == 200);
  terms = ruled.models.first.last_terms();
  CHECK(terms.queue_class == policies::QueueClass::batch);
  CHECK(terms.weight == 3.0);
  const auto left = [&] { return ruled.models.first.last_terms().deadline - std::chrono::steady_clock::now(); };
  CHECK(left() <= std::chrono::seconds(5));
  REQUIRE(ask(ruled, with_headers("x-tandem-priority: interactive\r\nx-tandem-deadline-ms: 50000\r\n")).status == 200);
  CHECK(ruled.models.first.last_terms().queue_class == policies::QueueClass::interactive);
  CHECK(left() > std::chrono::seconds(20));
  CHECK(left() <= std::chrono::seconds(50));
}

TEST_CASE("headers that say nothing sensible are a 400 that names them") {
  TestServer server;
  for (const char* header : {"x-tandem-priority: urgent", "x-tandem-deadline-ms: 0", "x-tandem-deadline-ms: -5",
                             "x-tandem-deadline-ms: 1.5", "x-tandem-deadline-ms: 86400001",
                             "x-tandem-deadline-ms: 99999999999999999999", "x-tandem-deadline-ms: 5s"}) {
    INFO(header);
    const Reply reply = ask(server, with_headers(std::string(header) + "\r\n"));
    CHECK(reply.status == 400);
    CHECK(reply.error_code() == "invalid_header");
    const std::string name = std::string(header).substr(0, std::string(header).find(':'));
    CHECK(reply.json().find("error")->find("param")->as_string() == name);
  }
  CHECK(server.models.first.submitted == 0);
}

TEST_CASE("a request whose deadline passes while it waits ends once, with the numbers") {
  TestServer server;
  server.models.first.script.hang_after = 0;
  server.models.first.script.place = {.position = 7, .wait_ms = 9000};
  const Reply reply = ask(server, with_headers("x-tandem-deadline-ms: 80\r\n"));
  CHECK(reply.status == 504);
  CHECK(reply.error_code() == "deadline_exceeded");
  CHECK(reply.body.find("was not complete after 80 ms; it came to the queue as number 7") != std::string::npos);
  CHECK(server.models.first.cancels == 1);
  CHECK(server.records.wait(1).size() == 1);
}

TEST_CASE("a model on other machines is for those whose requests may leave this one") {
  TestServer server;
  REQUIRE(ask(server, with_headers("")).status == 200);
  ModelInfo& info = server.models.first.info_to_set();
  info.leaves_machine = true;
  info.allow_keys = {"tdm_somebody"};
  const std::vector<std::pair<const char*, const char*>> everything = {
      {"/v1/completions", kBody},
      {"/v1/chat/completions", R"({"model":"alpha","messages":[{"role":"user","content":"hi"}]})"},
      {"/v1/messages", R"({"model":"alpha","max_tokens":5,"messages":[{"role":"user","content":"hi"}]})"},
      {"/v1/messages/count_tokens", R"({"model":"alpha","messages":[{"role":"user","content":"hi"}]})"},
      {"/v1/responses", R"({"model":"alpha","input":"hi"})"},
      {"/tokenize", R"({"model":"alpha","content":"hi"})"},
      {"/detokenize", R"({"model":"alpha","tokens":[1]})"}};
  for (const auto& [path, body] : everything) {
    INFO(path);
    const Reply refused = ask(server, request("POST", path, body));
    CHECK(refused.status == 403);
    CHECK(refused.body.find("may not leave this one") != std::string::npos);
  }
  info.allow_classes = {"batch"};
  CHECK(ask(server, with_headers("x-tandem-priority: batch\r\n")).status == 200);
  CHECK(ask(server, with_headers("")).status == 403);
  info.allow_keys = {"tdm_somebody", server.models.first.last_terms().key_id};
  CHECK(ask(server, with_headers("")).status == 200);
  info.allow_keys = {"*"};
  for (const auto& [path, body] : everything) {
    INFO(path);
    CHECK(ask(server, request("POST", path, body)).status != 403);
  }
}

}  // namespace
}  // namespace tandem::service
