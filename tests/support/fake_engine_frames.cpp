// What fake_engine answers to each frame.
#include <unistd.h>

#include "base/lease/page.h"
#include "base/overloaded.h"
#include "tests/support/fake_engine.h"

namespace tandem::tests {

using protocol::EngineState;

protocol::ModelFacts FakeEngine::facts() const {
  protocol::ModelFacts facts;
  facts.architecture = "fake";
  facts.name = options_.name;
  facts.file = options_.model;
  facts.context_tokens_max = options_.context_tokens;
  facts.slots = options_.slots;
  facts.vocab_size = kFakeEngineVocab;
  facts.has_chat_template = true;
  facts.isa = "none";
  facts.threads = 1;
  return facts;
}

void FakeEngine::handle(Connection& connection, const Frame& frame) {
  auto parsed = frame.payload.empty() ? Result<Json>(Json::object()) : parse_json(frame.payload);
  if (!parsed.ok() || (!connection.greeted && frame.type != FrameType::hello)) {
    connection.lost = true;
    return;
  }
  const uint64_t id = frame.request_id;
  switch (frame.type) {
    case FrameType::hello: return handle_hello(connection, *parsed);
    case FrameType::prepare: return handle_prepare(connection, id, *parsed);
    case FrameType::render: return handle_render(connection, id, *parsed);
    case FrameType::submit: return handle_submit(connection, id, *parsed);
    case FrameType::cancel: return handle_cancel(connection, id);
    case FrameType::stats: return send_stats(connection, id);
    case FrameType::resize: return handle_resize(connection, id, *parsed);
    case FrameType::drain: return handle_drain(connection, id);
    case FrameType::tokenize:
    case FrameType::detokenize: return handle_tokens(connection, frame, *parsed);
    case FrameType::release: connection.prompts.erase(id); return;
    case FrameType::credit: {
      const auto credit = protocol::Credit::from_json(*parsed);
      const auto request = connection.requests.find(id);
      if (credit.ok() && request != connection.requests.end()) {
        request->second.submit.credit += credit->events;
      }
      return;
    }
    default: connection.fail(id, Errc::invalid_argument, "not supported"); return;
  }
}

void FakeEngine::handle_hello(Connection& connection, const Json& json) {
  if (script_.flag("hang_on_hello")) return;
  const auto hello = protocol::Hello::from_json(json);
  if (!hello.ok()) {
    connection.lost = true;
    return;
  }
  const int64_t only = script_.number("engine_version", 0);
  if (only != 0 && (only < hello->version_min || only > hello->version_max)) {
    connection.fail(0, Errc::invalid_argument, "no common protocol version");
    connection.lost = true;
    return;
  }
  connection.greeted = true;
  protocol::Welcome welcome;
  welcome.version = script_.number("protocol_version", protocol::kVersionMax);
  welcome.instance_id = instance_id_;
  welcome.pid = ::getpid();
  welcome.model = options_.name;
  welcome.weights_hash = script_.text("weights_hash", "fake-weights");
  welcome.config_hash = options_.config_hash;
  if (const auto page = map_lease_page(options_.lease); page.ok()) {
    welcome.lease_page = lease_page_id(**page);
  }
  welcome.state = state_;
  if (state_ == EngineState::ready || state_ == EngineState::draining) welcome.facts = facts();
  connection.send(FrameType::welcome, 0, welcome.to_json());
}

void FakeEngine::handle_prepare(Connection& connection, uint64_t id, const Json& json) {
  const auto prepare = protocol::Prepare::from_json(json);
  if (!prepare.ok()) return connection.fail(id, prepare.error().code, prepare.error().message);
  if (state_ == EngineState::loading) return connection.fail(id, Errc::unavailable, "loading");
  Prompt prompt;
  std::visit(Overloaded{[&](const protocol::PrepareChat& chat) {
                          for (const Json& message : chat.messages.as_array()) {
                            const Json* content = message.find("content");
                            const bool text = content != nullptr && content->is_string();
                            prompt.text = text ? content->as_string() : "";
                            for (const char c : prompt.text) {
                              prompt.tokens.push_back(static_cast<unsigned char>(c));
                            }
                          }
                        },
                        [&](const protocol::PrepareText& text) {
                          prompt.text = text.text;
                          for (const char c : text.text) {
                            prompt.tokens.push_back(static_cast<unsigned char>(c));
                          }
                        },
                        [&](const protocol::PrepareTokens& tokens) {
                          prompt.tokens = tokens.tokens;
                          for (const int32_t t : tokens.tokens) {
                            if (t < 256) prompt.text.push_back(static_cast<char>(t));
                          }
                        }},
             prepare->input);
  const auto size = static_cast<int64_t>(prompt.tokens.size());
  if (size == 0) return connection.fail(id, Errc::invalid_argument, "the prompt is empty");
  if (size + 1 > options_.context_tokens) {
    return connection.fail(id, Errc::too_large,
                           "prompt of " + std::to_string(size) + " tokens, context " +
                               std::to_string(options_.context_tokens));
  }
  connection.prompts[id] = std::move(prompt);
  connection.send(FrameType::prepared, id, protocol::Prepared{size, 0, {size}}.to_json());
}

// The messages as lines "role: content".
void FakeEngine::handle_render(Connection& connection, uint64_t id, const Json& json) {
  const auto prepare = protocol::Prepare::from_json(json);
  const auto* chat =
      prepare.ok() ? std::get_if<protocol::PrepareChat>(&prepare->input) : nullptr;
  if (chat == nullptr || script_.flag("template_error")) {
    return connection.fail(id, Errc::invalid_argument, "the template refuses");
  }
  if (script_.flag("hang_on_render")) return;
  std::string text;
  for (const Json& message : chat->messages.as_array()) {
    const std::string& role = message.find("role")->as_string();
    if (role == "system" && !text.empty() && script_.flag("leading_system_only")) {
      return connection.fail(id, Errc::invalid_argument, "a system message must come first");
    }
    text += role + ": " + message.find("content")->as_string() + "\n";
  }
  connection.send(FrameType::text, id, protocol::Text{text + "assistant: "}.to_json());
}

void FakeEngine::handle_submit(Connection& connection, uint64_t id, const Json& json) {
  auto submit = protocol::Submit::from_json(json);
  const auto refuse = [&](Errc code, std::string message) {
    ++failed_;
    connection.fail(id, code, std::move(message));
  };
  if (!submit.ok()) return refuse(submit.error().code, submit.error().message);
  if (state_ != EngineState::ready) return refuse(Errc::unavailable, "not ready");
  const std::string refusal = script_.text("refuse_submit", "");
  if (!refusal.empty()) return refuse(errc_from_name(refusal), "refused by the script");
  const auto prompt = connection.prompts.find(submit->prompt_id);
  if (prompt == connection.prompts.end()) return refuse(Errc::not_found, "no such prompt");
  if (count(true) >= options_.slots && count(false) >= options_.queue_max) {
    return refuse(Errc::exhausted, "queue is full");
  }
  Request request;
  std::string answer = script_.answer(prompt->second.text);
  size_t cut = std::string::npos;
  for (const std::string& stop : submit->stop) {
    const size_t at = answer.find(stop);
    if (at < cut) {
      cut = at;
      request.stop_sequence = stop;
    }
  }
  if (cut != std::string::npos) answer.resize(cut);
  request.words = split_words(answer);
  request.prompt_tokens = static_cast<int64_t>(prompt->second.tokens.size());
  request.submit = std::move(*submit);
  request.submitted = clock_.now();
  prompt_tokens_ += request.prompt_tokens;
  connection.requests[id] = std::move(request);
}

void FakeEngine::handle_cancel(Connection& connection, uint64_t id) {
  const auto request = connection.requests.find(id);
  if (request == connection.requests.end()) return;
  finish(connection, id, request->second, protocol::FinishReason::cancelled);
  connection.requests.erase(request);
}

void FakeEngine::handle_tokens(Connection& connection, const Frame& frame, const Json& json) {
  if (frame.type == FrameType::tokenize) {
    const auto request = protocol::Tokenize::from_json(json);
    if (!request.ok()) return connection.fail(frame.request_id, Errc::corrupt, "tokenize");
    protocol::Tokens reply;
    for (const char c : request->content) {
      reply.tokens.push_back(static_cast<unsigned char>(c));
      if (request->with_pieces) reply.pieces.emplace_back(1, c);
    }
    return connection.send(FrameType::tokens, frame.request_id, reply.to_json());
  }
  const auto request = protocol::Detokenize::from_json(json);
  if (!request.ok()) return connection.fail(frame.request_id, Errc::corrupt, "detokenize");
  protocol::Text reply;
  for (const int32_t t : request->tokens) {
    if (t < 256) reply.text.push_back(static_cast<char>(t));
  }
  connection.send(FrameType::text, frame.request_id, reply.to_json());
}

void FakeEngine::handle_drain(Connection& connection, uint64_t id) {
  connection.drains.push_back(id);
  if (state_ == EngineState::ready) set_state(EngineState::draining, "drain was asked for");
}

// Takes every budget at once; "refuse_resize" refuses all, "pending_resize" says that they wait.
void FakeEngine::handle_resize(Connection& connection, uint64_t id, const Json& json) {
  const auto wanted = protocol::Resize::from_json(json);
  if (!wanted.ok()) return connection.fail(id, wanted.error().code, wanted.error().message);
  const std::string refusal = script_.text("refuse_resize", "");
  if (!refusal.empty()) return connection.fail(id, errc_from_name(refusal), "refused by the script");
  options_.kv_bytes = wanted->kv_bytes.value_or(options_.kv_bytes);
  options_.slots = wanted->slots.value_or(options_.slots);
  options_.batch_tokens = wanted->batch_tokens.value_or(options_.batch_tokens);
  shed_chunk_tokens_ = wanted->shed_chunk_tokens.value_or(shed_chunk_tokens_);
  protocol::Resized now;
  now.kv_bytes = now.kv_bytes_target = options_.kv_bytes;
  now.slots = options_.slots;
  now.running = count(true);
  now.batch_tokens = options_.batch_tokens;
  now.shed_chunk_tokens = shed_chunk_tokens_;
  now.pending = script_.flag("pending_resize");
  if (now.pending) now.message = "pending by the script";
  connection.send(FrameType::resized, id, now.to_json());
}

void FakeEngine::send_stats(Connection& connection, uint64_t id) {
  protocol::Stats stats;
  stats.state = state_;
  stats.running = count(true);
  stats.waiting = count(false);
  stats.slots = options_.slots;
  stats.kv_bytes_target = options_.kv_bytes;
  stats.batch_tokens = options_.batch_tokens;
  stats.shed_chunk_tokens = shed_chunk_tokens_;
  stats.prompt_tokens = prompt_tokens_;
  stats.completion_tokens = completion_tokens_;
  stats.requests_finished = finished_;
  stats.requests_cancelled = cancelled_;
  stats.requests_failed = failed_;
  connection.send(FrameType::stats_reply, id, stats.to_json());
}

}  // namespace tandem::tests
