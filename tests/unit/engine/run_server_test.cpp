// The io thread over a real socket, with the fake model behind it.
#include "engine/run/server.h"

#include <sys/stat.h>

#include <string>

#include "tests/support/engine_client.h"
#include "tests/support/engine_process.h"
#include "tests/support/engine_threads.h"
#include "tests/support/loop_harness.h"

#include "tests/support/catch.h"

namespace tandem::tests {
namespace {

struct Fixture {
  explicit Fixture(const EngineThreadsOptions& options = {})
      : engine(folder.path("s"), options) {}
  EngineClient client() { return EngineClient::connect(folder.path("s")).value(); }
  EngineClient greeted() {
    EngineClient c = client();
    REQUIRE(c.hello_until_ready().ok());
    return c;
  }
  TempFolder folder;
  EngineThreads engine;
};

protocol::Submit greedy_of(uint64_t prompt, int64_t max_tokens) {
  protocol::Submit submit = greedy(max_tokens);
  submit.prompt_id = prompt;
  submit.credit = 1'000'000;
  return submit;
}

// True when the engine closes the connection.
bool closes(EngineClient& client) {
  while (true) {
    const auto frame = client.next();
    if (!frame.ok()) return frame.error().code == Errc::io;
  }
}

std::string frame_bytes(FrameType type, uint64_t id, std::string_view payload) {
  std::string out;
  append_frame(out, type, id, payload);
  return out;
}

TEST_CASE("server: socket mode, hello, prepare, submit, several choices of one prompt") {
  Fixture f;
  struct stat info {};
  REQUIRE(::stat(f.folder.path("s").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  EngineClient client = f.client();
  const auto welcome = client.hello();
  REQUIRE(welcome.ok());
  CHECK(welcome->model == "fake");
  const auto prepared = client.prepare_text(1, "hello");
  REQUIRE(prepared.ok());
  CHECK(prepared->prompt_tokens == 5);
  for (uint64_t id = 2; id < 5; ++id) REQUIRE(client.submit(id, greedy_of(1, 10)).ok());
  // Answers interleave: collect drops the others, so count terminals by hand.
  int finished = 0;
  std::map<uint64_t, std::string> texts;
  while (finished < 3) {
    const auto frame = client.next();
    REQUIRE(frame.ok());
    if (frame->type != FrameType::event) continue;
    const auto event = protocol::Event::from_json(parse_json(frame->payload).value()).value();
    if (const auto* content = std::get_if<protocol::ContentEvent>(&event.body)) {
      texts[frame->request_id] += content->text;
    }
    finished += event.terminal() ? 1 : 0;
  }
  CHECK(texts[2].size() == 10);
  CHECK(texts[2] == texts[3]);
  CHECK(texts[2] == texts[4]);
}

TEST_CASE("server: while loading requests fail with unavailable, then the state is pushed") {
  Fixture f({.loaded = false});
  EngineClient client = f.client();
  const auto welcome = client.hello();
  REQUIRE(welcome.ok());
  CHECK(welcome->state == protocol::EngineState::loading);
  CHECK_FALSE(welcome->facts);
  const auto prepared = client.prepare_text(1, "hello");
  REQUIRE_FALSE(prepared.ok());
  CHECK(prepared.error().code == Errc::unavailable);
  const auto stats = client.stats(9);
  REQUIRE(stats.ok());
  CHECK(stats->state == protocol::EngineState::loading);
  f.engine.load();
  const auto frame = client.next();
  REQUIRE(frame.ok());
  CHECK(frame->type == FrameType::state);
  CHECK(client.prepare_text(1, "hello").ok());  // the id is free again
}

TEST_CASE("server: a failed load is told to those who are there and to those who come") {
  Fixture f({.loaded = false});
  EngineClient early = f.client();
  REQUIRE(early.hello().ok());
  f.engine.fail("no such file");
  for (EngineClient* client : {&early}) {
    const auto frame = client->next();
    REQUIRE(frame.ok());
    CHECK(frame->payload.find("no such file") != std::string::npos);
  }
  EngineClient late = f.client();
  const auto ready = late.hello_until_ready();
  REQUIRE_FALSE(ready.ok());
  CHECK(ready.error().message == "no such file");
}

TEST_CASE("server: protocol errors end the connection and only that") {
  Fixture f;
  EngineClient good = f.greeted();
  const std::string bad[] = {
      std::string(64, '\xff'),                                       // framing
      frame_bytes(FrameType::prepare, 1, "{}"),                      // before hello
      frame_bytes(FrameType::hello, 0, "[1]"),                       // not an object
      frame_bytes(FrameType::hello, 0, "{\"min\":1"),                // not JSON
      frame_bytes(FrameType::welcome, 0, "{}"),                      // wrong direction
  };
  for (const std::string& bytes : bad) {
    EngineClient client = f.client();
    REQUIRE(client.send_bytes(bytes).ok());
    CHECK(closes(client));
  }
  EngineClient twice = f.greeted();
  REQUIRE(twice.prepare_text(1, "x").ok());
  REQUIRE(twice.send(FrameType::prepare, 1, Json::object()).ok());
  CHECK(closes(twice));
  EngineClient zero = f.greeted();
  REQUIRE(zero.send(FrameType::prepare, 0, Json::object()).ok());
  CHECK(closes(zero));
  CHECK(good.prepare_text(1, "still here").ok());
}

TEST_CASE("server: versions that do not meet are refused with both ranges") {
  Fixture f;
  EngineClient client = f.client();
  protocol::Hello hello;
  hello.version_min = 7;
  hello.version_max = 9;
  REQUIRE(client.send(FrameType::hello, 0, hello.to_json()).ok());
  const auto frame = client.next();
  REQUIRE(frame.ok());
  CHECK(frame->type == FrameType::failed);
  CHECK(frame->payload.find("7 to 9") != std::string::npos);
  CHECK(closes(client));
}

TEST_CASE("server: wrong requests get failed and the connection lives") {
  Fixture f;
  EngineClient client = f.greeted();
  const auto refused = [&](FrameType type, uint64_t id, std::string_view payload) {
    REQUIRE(client.send_bytes(frame_bytes(type, id, payload)).ok());
    const auto frame = client.next_of(id);
    REQUIRE(frame.ok());
    CHECK(frame->type == FrameType::failed);
    return protocol::error_from_json(parse_json(frame->payload).value()).code;
  };
  CHECK(refused(FrameType::prepare, 1, "{\"kind\":\"nonsense\"}") == Errc::corrupt);
  CHECK(refused(FrameType::prepare, 1, "not json") == Errc::corrupt);
  CHECK(refused(FrameType::submit, 2, "not an object: []") != Errc::internal);
  CHECK(refused(FrameType::submit, 2, greedy_of(77, 5).to_json().dump()) == Errc::not_found);
  CHECK(refused(FrameType::tokenize, 3, "{}") == Errc::corrupt);
  CHECK(refused(FrameType::resize, 4, "{\"slots\":0}") == Errc::corrupt);
  CHECK(refused(FrameType::resize, 4, "no json") == Errc::corrupt);
  CHECK(client.prepare(5, {protocol::PrepareTokens{{1, 9999}}}).error().code ==
        Errc::invalid_argument);
  CHECK(client.prepare_text(6, "").error().code == Errc::invalid_argument);
  CHECK(client.prepare_text(7, std::string(70'000, 'x')).error().code == Errc::too_large);
  CHECK(client.prepare_text(8, "fine").ok());
}

TEST_CASE("server: a resize is answered, and later welcomes tell the new budgets") {
  Fixture f;
  EngineClient client = f.greeted();
  REQUIRE(client.send_bytes(frame_bytes(FrameType::resize, 4, "{\"slots\":7,\"kv_bytes\":640}")).ok());
  const auto frame = client.next_of(4);
  REQUIRE(frame.ok());
  REQUIRE(frame->type == FrameType::resized);
  const auto now = protocol::Resized::from_json(parse_json(frame->payload).value());
  REQUIRE(now.ok());
  CHECK(now->slots == 7);
  CHECK(now->kv_bytes == 640);
  EngineClient second = f.client();
  const auto welcome = second.hello();
  REQUIRE(welcome.ok());
  REQUIRE(welcome->facts.has_value());
  CHECK(welcome->facts->slots == 7);
  CHECK(welcome->facts->kv_bytes == 640);
}

TEST_CASE("server: a resize before the model is loaded is refused") {
  EngineThreadsOptions options;
  options.loaded = false;
  Fixture f(options);
  EngineClient client = f.client();
  REQUIRE(client.hello().ok());
  REQUIRE(client.send_bytes(frame_bytes(FrameType::resize, 4, "{}")).ok());
  const auto frame = client.next_of(4);
  REQUIRE(frame.ok());
  CHECK(protocol::error_from_json(parse_json(frame->payload).value()).code == Errc::unavailable);
}

TEST_CASE("server: with too many ids open a request fails, its connection lives") {
  EngineThreadsOptions options;
  options.connection.ids_max = 3;
  Fixture f(options);
  EngineClient client = f.greeted();
  for (uint64_t id = 1; id <= 3; ++id) REQUIRE(client.prepare_text(id, "x").ok());
  for (int again = 0; again < 2; ++again) {  // the id of a request that failed is free
    CHECK(client.prepare_text(4, "x").error().code == Errc::exhausted);
    REQUIRE(client.submit(5, greedy_of(1, 5)).ok());
    CHECK(client.next_event(5).error().code == Errc::exhausted);
  }
  REQUIRE(client.send(FrameType::release, 2, Json::object()).ok());
  REQUIRE(client.submit(5, greedy_of(1, 5)).ok());
  CHECK(client.collect(5).ok());
  REQUIRE(client.send(FrameType::tokenize, 3, Json::object()).ok());  // in use: the end, as before
  CHECK(closes(client));
}

TEST_CASE("server: a constraint is compiled with the prompt and outlives its release") {
  Fixture f;
  EngineClient client = f.greeted();
  const auto prepare = [&](uint64_t id, std::string_view schema) {
    protocol::Prepare request{protocol::PrepareText{.text = "x"}};
    request.constraint.emplace();
    request.constraint->kind = protocol::ConstraintKind::json_schema;
    request.constraint->schema = parse_json(schema).value();
    return client.prepare(id, request);
  };
  const auto prepared = prepare(1, R"({"type":"array","items":{"const":7},"minItems":40,"maxItems":40})");
  REQUIRE(prepared.ok());
  CHECK(prepared->answer_tokens_min == 81);  // bytes are this model's tokens
  for (uint64_t id = 2; id < 5; ++id) REQUIRE(client.submit(id, greedy_of(1, 200)).ok());
  REQUIRE(client.send(FrameType::release, 1, Json::object()).ok());
  const auto answer = client.collect(4);  // they run side by side: the events of the others are dropped
  REQUIRE(answer.ok());
  CHECK(parse_json(answer->text).value().as_array().size() == 40);
  CHECK(answer->finish.reason == protocol::FinishReason::stop);
  const auto refused = prepare(9, R"({"properties":{"a":{"unevaluatedItems":false}}})");
  CHECK(refused.error().code == Errc::invalid_argument);
  CHECK_FALSE(refused.error().path.empty());
  CHECK(prepare(9, "true").ok());  // the id is free again
}

TEST_CASE("server: release forgets a prompt and frees its id") {
  Fixture f;
  EngineClient client = f.greeted();
  REQUIRE(client.prepare_text(1, "x").ok());
  REQUIRE(client.send(FrameType::release, 1, Json::object()).ok());
  REQUIRE(client.submit(2, greedy_of(1, 5)).ok());
  CHECK(client.next_event(2).error().code == Errc::not_found);
  CHECK(client.prepare_text(1, "again").ok());
}

TEST_CASE("server: a lost connection cancels its requests and leaves the others") {
  Fixture f;
  EngineClient stays = f.greeted();
  EngineClient goes = f.greeted();
  REQUIRE(goes.prepare_text(1, "goes").ok());
  for (uint64_t id = 2; id < 6; ++id) REQUIRE(goes.submit(id, greedy_of(1, 60'000)).ok());
  REQUIRE(goes.next_event(2).ok());
  goes.close();
  REQUIRE(stays.prepare_text(1, "stays").ok());
  REQUIRE(stays.submit(2, greedy_of(1, 50)).ok());
  const auto answer = stays.collect(2);
  REQUIRE(answer.ok());
  CHECK(answer->tokens.size() == 50);
  const auto stats = stays.stats(3);
  REQUIRE(stats.ok());
  CHECK(stats->requests_cancelled == 4);
  CHECK(stats->kv_pages_owned == 0);
}

TEST_CASE("server: a client that does not read is paused, then dropped, and others run on") {
  EngineThreadsOptions options;
  options.connection.out_pause_bytes = 4096;
  options.connection.out_resume_bytes = 1024;
  options.connection.stall_max = std::chrono::seconds(1);
  Fixture f(options);
  EngineClient deaf = f.greeted();
  REQUIRE(deaf.prepare_text(1, "deaf").ok());
  REQUIRE(deaf.submit(2, greedy_of(1, 60'000)).ok());
  EngineClient other = f.greeted();
  REQUIRE(other.prepare_text(1, "other").ok());
  REQUIRE(other.submit(2, greedy_of(1, 50)).ok());
  CHECK(other.collect(2).ok());
  // The deaf one stops long before its end; then the connection goes and with it the request.
  uint64_t id = 10;
  while (true) {
    const auto stats = other.stats(id++);
    REQUIRE(stats.ok());
    if (stats->requests_cancelled == 1) {
      CHECK(stats->completion_tokens < 50'000);
      break;
    }
    REQUIRE(id < 1'000'000);
  }
  CHECK(closes(deaf));
}

TEST_CASE("server: a slow reader gets everything in the end") {
  EngineThreadsOptions options;
  options.connection.out_pause_bytes = 4096;
  options.connection.out_resume_bytes = 1024;
  Fixture f(options);
  EngineClient client = f.greeted();
  REQUIRE(client.prepare_text(1, "slow").ok());
  REQUIRE(client.submit(2, greedy_of(1, 20'000)).ok());
  const auto answer = client.collect(2);
  REQUIRE(answer.ok());
  CHECK(answer->tokens.size() == 20'000);
}

TEST_CASE("server: frames may come byte by byte, and a megabyte of prompt at once") {
  Fixture f({.context_tokens = 2'000'000});
  EngineClient client = f.greeted();
  protocol::PrepareText text;
  text.text = "slowly";
  const std::string bytes =
      frame_bytes(FrameType::prepare, 1, protocol::Prepare{text}.to_json().dump());
  for (const char c : bytes) REQUIRE(client.send_bytes(std::string_view(&c, 1)).ok());
  REQUIRE(client.next_of(1).ok());
  const auto large = client.prepare_text(2, std::string(size_t{1} << 20, 'y'));
  REQUIRE(large.ok());
  CHECK(large->prompt_tokens == 1 << 20);
}

TEST_CASE("server: a drain is answered when the last request has ended") {
  Fixture f;
  EngineClient client = f.greeted();
  REQUIRE(client.prepare_text(1, "x").ok());
  REQUIRE(client.submit(2, greedy_of(1, 200)).ok());
  REQUIRE(client.send(FrameType::drain, 3, Json::object()).ok());
  bool finished = false;
  bool draining = false;
  while (true) {
    const auto frame = client.next();
    REQUIRE(frame.ok());
    if (frame->type == FrameType::state) draining = true;
    if (frame->type == FrameType::event) {
      finished = protocol::Event::from_json(parse_json(frame->payload).value()).value().terminal();
    }
    if (frame->type == FrameType::drained) break;
  }
  CHECK(finished);
  CHECK(draining);
}

TEST_CASE("listener: a stale socket is replaced, a living one and a plain file are not") {
  TempFolder folder;
  const std::string path = folder.path("s");
  {
    auto first = engine::Listener::create(path);
    REQUIRE(first.ok());
    const auto second = engine::Listener::create(path);
    REQUIRE_FALSE(second.ok());
    CHECK(second.error().code == Errc::exhausted);
  }
  CHECK(::access(path.c_str(), F_OK) != 0);
  {
    auto leaves = engine::Listener::create(path);
    REQUIRE(leaves.ok());
    REQUIRE(::rename(path.c_str(), folder.path("kept").c_str()) == 0);
  }
  REQUIRE(::rename(folder.path("kept").c_str(), path.c_str()) == 0);
  CHECK(engine::Listener::create(path).ok());
  const std::string file = folder.write("file", "text");
  CHECK_FALSE(engine::Listener::create(file).ok());
  CHECK_FALSE(engine::Listener::create(std::string(200, 'x')).ok());
}

}  // namespace
}  // namespace tandem::tests
