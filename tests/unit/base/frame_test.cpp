#include "base/frame.h"

#include "base/protocol.h"
#include "tests/support/catch.h"

namespace tandem {
namespace {

TEST_CASE("frames survive any chunking") {
  std::string wire;
  append_frame(wire, FrameType::hello, 0, R"({"a":1})");
  append_frame(wire, FrameType::event, 77, "");
  append_frame(wire, FrameType::cancel, UINT64_MAX, std::string(1000, 'x'));
  for (size_t chunk = 1; chunk < 40; ++chunk) {
    FrameDecoder decoder;
    std::vector<Frame> frames;
    for (size_t at = 0; at < wire.size(); at += chunk) {
      decoder.feed(std::string_view(wire).substr(at, chunk));
      while (auto frame = decoder.next().value()) frames.push_back(*std::move(frame));
    }
    REQUIRE(frames.size() == 3);
    REQUIRE(frames[0].payload == R"({"a":1})");
    REQUIRE(frames[1].type == FrameType::event);
    REQUIRE(frames[1].request_id == 77);
    REQUIRE(frames[2].request_id == UINT64_MAX);
    REQUIRE(frames[2].payload.size() == 1000);
  }
}

TEST_CASE("a bad header is refused before its payload is awaited") {
  std::string unknown;
  append_frame(unknown, FrameType::hello, 1, "");
  unknown[4] = 40;
  std::string reserved;
  append_frame(reserved, FrameType::hello, 1, "");
  reserved[6] = 1;
  std::string large;
  append_frame(large, FrameType::hello, 1, "12345");
  for (const auto& [bytes, code] :
       {std::pair{unknown, Errc::corrupt}, {reserved, Errc::corrupt}, {large, Errc::too_large}}) {
    FrameDecoder decoder(4);
    decoder.feed(std::string_view(bytes).substr(0, kFrameHeaderBytes));
    REQUIRE(decoder.next().error().code == code);
  }
}

template <typename T>
T round_trip(const T& message) {
  const Json json = parse_json(message.to_json().dump()).value();
  T out = T::from_json(json).value();
  REQUIRE(out.to_json() == message.to_json());
  return out;
}

TEST_CASE("protocol messages round-trip through their text") {
  using protocol::ContentEvent, protocol::Credit, protocol::EngineState, protocol::Event,
      protocol::FinishEvent, protocol::FinishReason, protocol::Hello, protocol::ModelFacts,
      protocol::Prepare, protocol::PrepareChat, protocol::Prepared, protocol::PrepareText,
      protocol::PrepareTokens, protocol::ScoredToken, protocol::StateChange, protocol::Stats,
      protocol::Submit, protocol::Tokens, protocol::ToolCallEvent, protocol::Welcome;
  round_trip(Hello{.client = "test"});
  ModelFacts facts{.architecture = "llama", .context_tokens_max = 4096, .slots = 4, .vocab_size = 9,
                   .notes = {"slots: asked 4, got 2"}};
  round_trip(Welcome{.instance_id = "i", .pid = 7, .model = "m", .facts = facts});
  round_trip(StateChange{.state = EngineState::failed, .message = "why"});
  round_trip(Prepare{PrepareChat{.messages = Json(Json::Array{Json::object({{"role", "user"}})})}});
  round_trip(Prepare{PrepareText{.text = "x"}});
  round_trip(Prepare{PrepareTokens{.tokens = {1, 2, 3}}});
  round_trip(Prepared{.prompt_tokens = 5, .boundaries = {2, 5}});
  Submit submit{.prompt_id = 3, .max_tokens = 9, .stop = {"\n"}, .top_logprobs = 2};
  submit.sampling.seed = UINT64_MAX - 1;
  submit.sampling.logit_bias = {{4, -1.5}};
  REQUIRE(round_trip(submit).sampling.seed == UINT64_MAX - 1);
  const ScoredToken scored{.chosen = {.token = 3, .bytes = "\xFF\x00z", .logprob = -0.25},
                           .top = {{.token = 3, .bytes = "a", .logprob = -0.25}}};
  round_trip(Event{ContentEvent{.text = "hi", .token = 3, .reasoning = true, .score = scored}});
  round_trip(Event{ToolCallEvent{.id = "c", .name = "f", .arguments = "{}"}});
  FinishEvent finish{.reason = FinishReason::length, .text = "z", .usage = {.prompt_tokens = 1}};
  finish.warnings = {{.rule = 16, .code = "w", .detail = "why"}};
  finish.call_missing = true;
  REQUIRE(round_trip(Event{finish}).terminal());
  round_trip(Credit{.events = 3});
  round_trip(Tokens{.tokens = {1}, .pieces = {"\xC3"}});
  round_trip(Stats{.running = 2, .kv_pages_total = 8, .unspent_bytes = 5});
}

TEST_CASE("a resize says only what changes; an older engine's stats lack the newer numbers") {
  using protocol::Resize, protocol::Resized, protocol::Stats;
  const Resize read = round_trip(Resize{.kv_bytes = 7, .slots = {}, .batch_tokens = {}, .shed_chunk_tokens = 0});
  REQUIRE(read.kv_bytes == 7);
  REQUIRE_FALSE(read.slots.has_value());
  REQUIRE(read.shed_chunk_tokens == 0);
  REQUIRE(Resize{}.to_json().dump() == "{}");
  for (const char* wrong : {R"({"kv_bytes":0})", R"({"slots":0})", R"({"slots":"4"})",
                            R"({"batch_tokens":65537})", R"({"shed_chunk_tokens":-1})"}) {
    REQUIRE_FALSE(Resize::from_json(parse_json(wrong).value()).ok());
  }
  REQUIRE(round_trip(Resized{.kv_bytes = 9, .slots = 1, .batch_tokens = 33, .pending = true}).pending);
  Json older = Stats{.running = 2}.to_json();
  for (const char* field : {"unspent_bytes", "ledger_kv_bytes", "kv_bytes_target"}) older.erase(field);
  REQUIRE(Stats::from_json(older).value().running == 2);
  older.erase("running");
  REQUIRE_FALSE(Stats::from_json(older).ok());
}

TEST_CASE("constraints and formats of answers round-trip, and may be absent") {
  using protocol::AnswerFormat, protocol::Constraint, protocol::ConstraintKind, protocol::Prepare,
      protocol::PrepareChat, protocol::Prepared, protocol::Submit;
  const Json tools(Json::Array{Json::object({{"type", "function"}})});
  Prepare prepare{PrepareChat{.continue_final_message = true}, Constraint{}};
  prepare.constraint = Constraint{.kind = ConstraintKind::tool_call,
                                  .schema = Json::object({{"type", "object"}}),
                                  .tools = tools,
                                  .tool_name = "f",
                                  .syntax = "hermes",
                                  .parallel_calls = false};
  const Prepare prepared = round_trip(prepare);
  REQUIRE(prepared.constraint->kind == ConstraintKind::tool_call);
  REQUIRE(prepared.constraint->tools == tools);
  REQUIRE(prepared.constraint->tool_name == "f");
  REQUIRE_FALSE(prepared.constraint->parallel_calls);
  REQUIRE(std::get<PrepareChat>(prepared.input).continue_final_message);
  Json broken = prepare.to_json();
  Json constraint = *broken.find("constraint");
  constraint.set("kind", "poem");
  broken.set("constraint", constraint);
  REQUIRE(Prepare::from_json(broken).error().path == "kind");

  Submit submit{.prompt_id = 1, .max_tokens = 9, .thinking_tokens_max = 4};
  submit.answer_tokens_reserved = 2;
  submit.format = AnswerFormat{.syntax = "qwen_xml",
                               .thinking_open = true,
                               .thinking_begins = true,
                               .tools = tools,
                               .tool_choice = "auto",
                               .parallel_calls = false,
                               .nine_character_ids = true,
                               .id_seed = "s",
                               .rules_off = {12, 24}};
  const Submit read = round_trip(submit);
  REQUIRE(read.thinking_tokens_max == 4);
  REQUIRE(read.answer_tokens_reserved == 2);
  REQUIRE(read.format->rules_off == std::vector<int32_t>{12, 24});
  REQUIRE(read.format->tool_choice == Json("auto"));
  REQUIRE(read.format->thinking_begins);
  // A peer that does not know them.
  Json older = Submit{.prompt_id = 1, .max_tokens = 1}.to_json();
  for (const char* field : {"thinking_tokens_max", "answer_tokens_reserved"}) older.erase(field);
  REQUIRE_FALSE(Submit::from_json(older).value().format.has_value());
  Json old_answer = Prepared{.prompt_tokens = 5}.to_json();
  for (const char* field : {"answer_tokens_min", "warnings"}) old_answer.erase(field);
  REQUIRE(Prepared::from_json(old_answer).value().answer_tokens_min == 0);
}

TEST_CASE("malformed protocol messages are refused with the field's name") {
  using protocol::Event;
  using protocol::Submit;
  const auto parse = [](const char* text) { return parse_json(text).value(); };
  REQUIRE(Submit::from_json(parse("[]")).error().code == Errc::corrupt);
  Json submit = Submit{.prompt_id = 1, .max_tokens = 1}.to_json();
  for (const char* field : {"prompt_id", "sampling", "max_tokens", "stop", "top_logprobs", "credit"}) {
    Json broken = submit;
    broken.set(field, "x");
    REQUIRE_FALSE(Submit::from_json(broken).ok());
    broken.erase(field);
    REQUIRE(Submit::from_json(broken).error().path == field);
  }
  REQUIRE(Event::from_json(parse(R"({"type":"other"})")).error().path == "type");
  REQUIRE(Event::from_json(parse(R"({"type":"content","text":"a","token":-1})")).error().path ==
          "token");
  REQUIRE(protocol::error_from_json(parse("{}")).code == Errc::corrupt);
  const Error error = make_error(Errc::too_large, "m", "p");
  REQUIRE(protocol::error_from_json(protocol::error_to_json(error)).code == Errc::too_large);
}

TEST_CASE("an error fits into a frame, whatever the client's bytes in it are") {
  const std::string hostile(kFramePayloadBytesMax / 2, '"');
  std::string out;
  append_frame(out, FrameType::failed, 1,
               protocol::error_to_json(make_error(Errc::corrupt, hostile, hostile)).dump());
  CHECK(out.size() < 16'384);
  // Cut before the character that does not fit.
  std::string letters = "k";
  for (int i = 0; i < 4096; ++i) letters += "\xc3\xa9";
  const Json json = protocol::error_to_json(make_error(Errc::corrupt, letters, letters));
  CHECK(json.find("path")->as_string() == letters.substr(0, 1023));
  CHECK(json.find("message")->as_string() == letters.substr(0, 4095));
}

}  // namespace
}  // namespace tandem
