#include "tests/policies/random_chat.h"

#include <utility>

namespace tandem::policies {
namespace {

Json message(const char* role, Json content) {
  return Json::object({{"role", Json(role)}, {"content", std::move(content)}});
}

}  // namespace

std::string RandomChat::words() {
  const char* const kWords[] = {"alpha",       "\xEC\x84\x9C\xEC\x9A\xB8",
                                "<think>",     "\n",
                                "{}",          "x < y",
                                "</think>",    "  ",
                                "<tool_call>", "end."};
  std::string text = "w" + std::to_string(below(1000));
  for (size_t i = below(4); i > 0; --i) {
    text += ' ';
    text += kWords[below(std::size(kWords))];
  }
  return text;
}

Json RandomChat::content() {
  if (!chance(25)) return Json(words());
  Json::Array parts;
  for (size_t i = below(3); i > 0; --i) {
    const char* type = chance(50) ? "text" : "input_text";
    parts.push_back(Json::object({{"type", Json(type)}, {"text", Json(words())}}));
  }
  return Json(std::move(parts));
}

Json RandomChat::value(int depth) {
  switch (below(depth > 0 ? 7 : 5)) {
    case 0:
      return Json();
    case 1:
      return Json(chance(50));
    case 2:
      return Json(static_cast<int64_t>(random_() >> below(60)) - 5);
    case 3:
      return Json(static_cast<double>(below(1000)) / 8.0);
    case 4:
      return Json(words());
    case 5: {
      Json::Array list;
      for (size_t i = below(4); i > 0; --i) list.push_back(value(depth - 1));
      return Json(std::move(list));
    }
    default:
      return object(depth - 1);
  }
}

Json RandomChat::object(int depth) {
  Json out = Json::object();
  for (size_t i = below(4); i > 0; --i) out.set("k" + std::to_string(below(9)), value(depth));
  return out;
}

Json RandomChat::arguments() {
  switch (below(7)) {
    case 0:
      return Json("");
    case 1:
      return Json();
    case 2:
      return Json("{\"half");
    case 3:
      return Json("[1, 2]");
    case 4:
      return object(2);
    default:
      return Json(object(2).dump());
  }
}

Json RandomChat::call() {
  Json function = Json::object();
  if (!chance(5)) function.set("name", Json(chance(10) ? "f<|channel|>x" : "f"));
  if (!chance(10)) function.set("arguments", arguments());
  Json out = Json::object({{"type", Json("function")}, {"function", std::move(function)}});
  if (!chance(15)) out.set("id", Json("call_" + std::to_string(chance(20) ? 0 : calls_++)));
  if (chance(10)) out.set("call_id", Json("other_" + std::to_string(calls_++)));
  return out;
}

// `complete`: every call has its result, as an agent sends it.
void RandomChat::add_round(Json::Array& messages, bool complete) {
  Json::Array calls;
  for (size_t i = 1 + below(3); i > 0; --i) calls.push_back(call());
  if (complete) {
    for (Json& one : calls) {
      one.set("id", Json("call_" + std::to_string(calls_++)));
      one.find("function")->set("name", Json("f"));
    }
  }
  std::vector<Json> ids;
  for (const Json& one : calls) ids.push_back(one.find("id") == nullptr ? Json() : *one.find("id"));
  Json head = message("assistant", chance(50) ? Json() : content());
  head.set("tool_calls", Json(std::move(calls)));
  if (chance(30)) head.set("reasoning_content", Json(words()));
  messages.push_back(std::move(head));
  for (const Json& id : ids) {
    if (chance(15)) add_system(messages);
    if (!complete && chance(20)) continue;
    Json result = message("tool", content());
    if (complete || !chance(5))
      result.set("tool_call_id", !complete && chance(5) ? Json("zz") : id);
    messages.push_back(std::move(result));
  }
}

void RandomChat::add_system(Json::Array& messages) {
  messages.push_back(
      message(chance(20) ? "developer" : "system", chance(15) ? Json(" ") : content()));
}

void RandomChat::add_user(Json::Array& messages) {
  Json user = message("user", content());
  if (chance(10)) {
    Json image = Json::object({{"type", Json("image_url")}, {"image_url", Json::object()}});
    user.set("content", Json(Json::Array{std::move(image)}));
  }
  messages.push_back(std::move(user));
}

Json::Array RandomChat::first_turns() {
  Json::Array messages;
  for (size_t i = below(3); i > 0; --i) add_system(messages);
  add_user(messages);
  for (size_t i = below(2); i > 0; --i) add_system(messages);
  return messages;
}

void RandomChat::grow(Json::Array& messages) {
  if (chance(40)) {
    add_round(messages, true);
  } else {
    Json reply = message("assistant", Json(words()));
    if (chance(30)) reply.set(chance(50) ? "reasoning" : "reasoning_content", Json(words()));
    messages.push_back(std::move(reply));
    if (chance(30)) add_system(messages);
    add_user(messages);
  }
  for (size_t i = below(3) / 2; i > 0; --i) add_system(messages);
}

void RandomChat::add_parameters(Json& request) {
  const auto maybe = [&](const char* key, Json number) {
    if (chance(20)) request.set(key, chance(10) ? Json() : std::move(number));
  };
  const char* const kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
  maybe("max_tokens", Json(static_cast<int64_t>(1 + below(chance(50) ? 600 : 6000))));
  maybe("max_completion_tokens", Json(static_cast<int64_t>(1 + below(2000))));
  maybe("temperature", Json(chance(40) ? 0.0 : 0.5));
  maybe("top_p", Json(chance(30) ? 0.0 : 0.5));
  maybe("top_k", Json(static_cast<int64_t>(below(40)) - 2));
  maybe("repeat_penalty", Json(1.25));
  maybe("repetition_penalty", Json(1.5));
  maybe("n", Json(static_cast<int64_t>(1 + below(3))));
  maybe("seed", Json(static_cast<int64_t>(random_() >> 1)));
  maybe("stop", chance(50) ? Json("END") : Json(Json::Array{Json(""), Json("A"), Json()}));
  maybe("stream", Json(chance(50)));
  maybe("stream_options", Json::object({{"include_usage", Json(chance(50))}}));
  maybe("reasoning_effort", Json(kEfforts[below(std::size(kEfforts))]));
  maybe("reasoning", Json::object({{"effort", Json(kEfforts[below(std::size(kEfforts))])}}));
  maybe("enable_thinking", chance(50) ? Json(chance(50)) : Json("false"));
  maybe("chat_template_kwargs", chance(50) ? Json::object({{"enable_thinking", Json(chance(50))}})
                                           : Json::object({{"other", Json(1)}}));
  maybe("thinking_token_budget", Json(static_cast<int64_t>(below(900)) - 1));
  maybe("thinking_budget_tokens", Json(static_cast<int64_t>(below(900))));
  maybe("response_format", Json::object({{"type", Json(chance(40) ? "text" : "json_object")}}));
  maybe("logprobs", Json(chance(50)));
  maybe("store", Json(true));
  maybe("made_up", Json(1));
  if (!chance(40)) return;
  Json text = Json::object({{"type", Json("string")}, {"pattern", Json("^a$")}});
  Json schema = Json::object({{"properties", Json::object({{"pattern", std::move(text)}})}});
  Json function = Json::object({{"name", Json("f")}, {"parameters", std::move(schema)}});
  request.set("tools", Json(Json::Array{Json::object({{"function", std::move(function)}})}));
  maybe("tool_choice", Json(chance(30) ? "none" : "auto"));
  maybe("parallel_tool_calls", Json(chance(50)));
}

Json RandomChat::request() {
  Json::Array messages = first_turns();
  for (size_t i = below(5); i > 0; --i) {
    if (chance(50)) {
      grow(messages);
    } else {
      add_round(messages, false);
    }
    if (chance(20)) messages.push_back(message("assistant", chance(50) ? Json(" ") : content()));
    if (chance(5)) messages.erase(messages.begin());
  }
  Json request = Json::object({{"messages", Json(std::move(messages))}});
  add_parameters(request);
  return request;
}

TargetFacts RandomChat::target() {
  const EngineKind kEngines[] = {EngineKind::vllm,     EngineKind::llama_server, EngineKind::ollama,
                                 EngineKind::lmstudio, EngineKind::sglang,       EngineKind::own};
  TargetFacts facts = default_facts(kEngines[below(std::size(kEngines))]);
  if (chance(30)) facts.tool_parser = !facts.tool_parser;
  if (chance(30)) facts.thinking_budget = !facts.thinking_budget;
  if (chance(30)) facts.supports_n = !facts.supports_n;
  if (chance(30)) facts.grammar_after_reasoning = !facts.grammar_after_reasoning;
  if (chance(30)) {
    facts.context_tokens = 4096;
    facts.prompt_tokens = static_cast<int64_t>(below(4096));
  }
  return facts;
}

ModelProfile RandomChat::profile() {
  const char* const kFamilies[] = {"qwen3.8", "qwen3.6",     "qwen3.5", "qwen3",  "hermes",
                                   "qwen2.5", "qwen3-coder", "gemma4",  "gemma3", "mistral",
                                   "gpt-oss", "llama3",      "plain"};
  ModelProfile profile = *family_profile(kFamilies[below(std::size(kFamilies))]);
  if (chance(10)) profile.system = SystemPlacement::none;
  return profile;
}

}  // namespace tandem::policies
