// Requests that are built to be expensive: many fields, many messages, and what bounds them.
#include <string>

#include "policies/sanitize/sanitize.h"
#include "tests/support/catch.h"

using tandem::Json;
namespace policies = tandem::policies;
using policies::EngineKind;
using policies::Rejection;
using policies::Sanitized;

namespace {

policies::SanitizeOutcome run(Json request, const char* family = "qwen3.8") {
  return policies::sanitize(std::move(request), *policies::family_profile(family),
                            policies::default_facts(EngineKind::own), {});
}

Json message(const char* role, Json content) {
  return Json::object({{"role", Json(role)}, {"content", std::move(content)}});
}

Json chat(Json::Array messages) {
  return Json::object({{"messages", Json(std::move(messages))}});
}

Json with_fields(size_t count, const Json& value) {
  Json request = chat({message("user", "q")});
  Json::Object& fields = request.as_object();
  for (size_t i = 1; i < count; ++i) fields.emplace_back("made_up_" + std::to_string(i), value);
  return request;
}

Json text_part(const char* text) {
  return Json::object({{"type", Json("text")}, {"text", Json(text)}});
}

}  // namespace

TEST_CASE("the number of fields is limited, and so are their names", "[sanitize]") {
  for (const Json& value : {Json(1), Json()}) {
    const auto most = run(with_fields(256, value));
    REQUIRE(std::holds_alternative<Sanitized>(most));
    REQUIRE(std::get<Sanitized>(most).send.find("made_up_1") == nullptr);
    const auto beyond = run(with_fields(200'000, value));
    REQUIRE(std::holds_alternative<Rejection>(beyond));
    const Rejection& rejection = std::get<Rejection>(beyond);
    REQUIRE(rejection.status == 400);
    REQUIRE(rejection.code == "too_many_items");
    REQUIRE(rejection.message == "the request has 200000 fields, the limit is 256");
  }
  Json request = with_fields(1, Json());
  request.set(std::string(257, 'k'), Json(1));
  const auto named = run(std::move(request));
  REQUIRE(std::holds_alternative<Rejection>(named));
  REQUIRE(std::get<Rejection>(named).message ==
          "the name of a field has 257 bytes, the limit is 256");
}

TEST_CASE("fields are dropped in their order, each with its entries", "[sanitize]") {
  Json request = with_fields(3, Json(1));
  request.set("user", Json("u"));
  const Sanitized sanitized = std::get<Sanitized>(run(std::move(request)));
  std::string told;
  for (const auto& entry : sanitized.receipt) {
    if (entry.rule == 27) told += entry.key + entry.code + " ";
  }
  REQUIRE(told == "made_up_1 param_dropped:made_up_1 made_up_2 param_dropped:made_up_2 user ");
}

TEST_CASE("a receipt is cut, and says so", "[sanitize]") {
  Json::Array messages;
  for (int i = 0; i < 5000; ++i) messages.push_back(message("tool", "r"));
  messages.push_back(message("user", "q"));
  const Sanitized sanitized = std::get<Sanitized>(run(chat(std::move(messages))));
  REQUIRE(sanitized.receipt.size() == 1024);
  REQUIRE(sanitized.receipt[1022].code != "receipt_cut");
  REQUIRE(sanitized.receipt[1023].code == "receipt_cut");
}

// Quadratic work would take minutes here.
TEST_CASE("thousands of messages of one role join at once", "[sanitize]") {
  constexpr int kMessages = 20'000;
  const std::string text(500, 'a');
  Json::Array messages{message("user", "q")};
  for (int i = 0; i < kMessages; ++i) messages.push_back(message("assistant", Json(text)));
  Json::Array alternating = messages;
  alternating.push_back(message("user", "r"));
  const Sanitized prefill = std::get<Sanitized>(run(chat(std::move(messages))));
  const Json::Array& sent = prefill.send.find("messages")->as_array();
  REQUIRE(prefill.prefill);
  REQUIRE(sent.size() == 2);
  REQUIRE(sent[1].find("content")->as_string().size() == kMessages * text.size());
  const Sanitized merged = std::get<Sanitized>(run(chat(std::move(alternating)), "gemma3"));
  const Json::Array& neighbours = merged.send.find("messages")->as_array();
  REQUIRE(neighbours.size() == 3);
  REQUIRE(neighbours[1].find("content")->as_string().size() ==
          kMessages * (text.size() + 2) - 2);
}

TEST_CASE("tools are limited in bytes and in depth", "[sanitize]") {
  const auto tool = [](Json parameters, size_t name_bytes) {
    Json function = Json::object({{"name", Json(std::string(name_bytes, 'f'))}});
    function.set("parameters", std::move(parameters));
    return Json::object({{"type", Json("function")}, {"function", std::move(function)}});
  };
  const auto refusal = [&](size_t levels, size_t name_bytes, const char* choice) {
    Json schema = Json::object();
    for (size_t i = 1; i < levels; ++i) schema = Json::object({{"not", std::move(schema)}});
    Json request = chat({message("user", "q")});
    request.set("tools", Json(Json::Array{tool(std::move(schema), name_bytes)}));
    request.set("tool_choice", Json(choice));
    const auto outcome = run(std::move(request));
    const auto* rejection = std::get_if<Rejection>(&outcome);
    return rejection == nullptr ? std::string() : rejection->path + ": " + rejection->message;
  };
  REQUIRE(refusal(45, 1'000'000, "auto").empty());
  REQUIRE(refusal(46, 1, "none") == "tools: tools is nested 49 deep, the limit is 48");
  REQUIRE(refusal(1, 1 << 20, "none") ==
          "tools: tools has 1048636 bytes of JSON, the limit is 1048576");
}

TEST_CASE("blocks and calls of one message cost what they are long", "[sanitize]") {
  std::string text = "<details <details type=\"reasoning\">a</details>type=\"reasoning\">b</details>c";
  for (int i = 0; i < 100'000; ++i) text += "<details type=\"reasoning\">t</details>x";
  const Sanitized stored = std::get<Sanitized>(
      run(chat({message("user", "q"), message("assistant", Json(text)), message("user", "r")})));
  REQUIRE(stored.send.find("messages")->as_array()[1].find("content")->as_string() ==
          "c" + std::string(100'000, 'x'));

  const Json call = Json::object({{"function", Json::object({{"name", Json("f")}})}});
  const auto calls = [&](size_t count) {
    Json with_calls = message("assistant", "");
    with_calls.set("tool_calls", Json(Json::Array(count, call)));
    return run(chat({message("user", "q"), std::move(with_calls), message("user", "r")}));
  };
  REQUIRE(std::holds_alternative<Sanitized>(calls(1024)));
  const auto beyond = calls(200'000);
  REQUIRE(std::holds_alternative<Rejection>(beyond));
  REQUIRE(std::get<Rejection>(beyond).path == "messages[1].tool_calls");
  REQUIRE(std::get<Rejection>(beyond).message ==
          "the message has 200000 calls, the limit is 1024");
}

TEST_CASE("text joins up to the first list of parts", "[sanitize]") {
  const Json image = Json::object({{"type", Json("image_url")}});
  Json::Array messages{message("user", "q"), message("assistant", "a"), message("assistant", "b"),
                       message("assistant", Json(Json::Array{image, text_part("c")})),
                       message("assistant", "d")};
  const Sanitized sanitized = std::get<Sanitized>(run(chat(std::move(messages))));
  REQUIRE(sanitized.send.find("messages")->as_array()[1].find("content")->dump() ==
          R"([{"type":"text","text":"ab"},{"type":"image_url"},{"type":"text","text":"c"},)"
          R"({"type":"text","text":"d"}])");
}
