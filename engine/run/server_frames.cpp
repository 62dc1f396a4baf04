// What the io thread does with each frame of a client; see server.h.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/run/process_memory.h"
#include "engine/run/server.h"

namespace tandem::engine {
namespace {

Error broken(std::string what) { return make_error(Errc::corrupt, std::move(what)); }

Result<Json> payload_of(const Frame& frame) {
  if (frame.payload.empty()) return Json::object();
  return parse_json(frame.payload);
}

Result<protocol::Submit> submit_of(const Frame& frame) {
  TRY_ASSIGN(const Json json, payload_of(frame));
  return protocol::Submit::from_json(json);
}

Result<protocol::Resize> resize_of(const Frame& frame) {
  TRY_ASSIGN(const Json json, payload_of(frame));
  return protocol::Resize::from_json(json);
}

}  // namespace

Result<void> Server::handle_frame(Connection& connection, Frame frame) {
  if (!connection.greeted && frame.type != FrameType::hello) {
    return broken(std::string(frame_type_name(frame.type)) + " before hello");
  }
  const uint64_t id = frame.request_id;
  switch (frame.type) {
    case FrameType::prepare:
    case FrameType::render:
    case FrameType::tokenize:
    case FrameType::detokenize: return handle_job(connection, std::move(frame));
    case FrameType::stats: return handle_stats(connection, id);
    case FrameType::drain: return handle_drain(connection, id);
    case FrameType::cancel: handle_cancel(connection, id); return {};
    case FrameType::release: handle_release(connection, id); return {};
    case FrameType::resize: return handle_resize(connection, frame);
    case FrameType::submit: return handle_submit(connection, frame);
    case FrameType::hello:
    case FrameType::credit: break;
    default: return broken(std::string("unexpected frame ") + frame_type_name(frame.type));
  }
  TRY_ASSIGN(const Json json, payload_of(frame));
  if (frame.type == FrameType::hello) return handle_hello(connection, json);
  TRY_ASSIGN(const protocol::Credit credit, protocol::Credit::from_json(json));
  if (connection.use_of(id) == IdUse::running) {
    to_loop(CreditCommand{.key = {connection.id(), id}, .events = credit.events});
  }
  return {};
}

Result<void> Server::handle_hello(Connection& connection, const Json& json) {
  if (connection.greeted) return broken("a second hello");
  TRY_ASSIGN(const protocol::Hello hello, protocol::Hello::from_json(json));
  const int64_t version = std::min(hello.version_max, protocol::kVersionMax);
  if (version < hello.version_min || version < protocol::kVersionMin) {
    const std::string theirs =
        std::to_string(hello.version_min) + " to " + std::to_string(hello.version_max);
    connection.queue(
        FrameType::failed, 0,
        protocol::error_to_json(make_error(
            Errc::invalid_argument, "no common protocol version: client " + theirs + ", engine " +
                                        std::to_string(protocol::kVersionMin) + " to " +
                                        std::to_string(protocol::kVersionMax))));
    connection.close_when_sent = true;
    return {};
  }
  connection.greeted = true;
  protocol::Welcome welcome = options_.identity;
  welcome.version = version;
  welcome.state = state_.state;
  if (serving()) welcome.facts = state_.facts;
  connection.queue(FrameType::welcome, 0, welcome.to_json());
  // welcome has no place for the reason.
  if (state_.state == protocol::EngineState::failed) {
    connection.queue(FrameType::state, 0, state_.to_json());
  }
  log::info("client " + log::quoted(hello.client) + " connected");
  return {};
}

void Server::fail(Connection& connection, uint64_t id, const Error& error) {
  connection.free(id);
  connection.queue(FrameType::failed, id, protocol::error_to_json(error));
}

// False: the request has failed, because the connection has too many ids in use.
Result<bool> Server::take_id(Connection& connection, uint64_t id, IdUse use) {
  TRY_ASSIGN(const bool taken, connection.take(id, use));
  if (!taken) {
    fail(connection, id, make_error(Errc::exhausted, std::to_string(connection.ids_max()) +
                                                         " requests and prompts are open on this "
                                                         "connection"));
  }
  return taken;
}

Result<void> Server::handle_job(Connection& connection, Frame frame) {
  const uint64_t id = frame.request_id;
  const IdUse use = frame.type == FrameType::prepare ? IdUse::preparing : IdUse::asking;
  TRY_ASSIGN(const bool taken, take_id(connection, id, use));
  if (!taken) return {};
  if (!serving()) {
    fail(connection, id, make_error(Errc::unavailable, "the model is not loaded"));
    return {};
  }
  const size_t bytes = frame.payload.size();
  if (bytes > options_.prepare_bytes_max - prepare_bytes_) {
    fail(connection, id, make_error(Errc::exhausted, std::to_string(prepare_bytes_) +
                                                         " bytes of prompts wait to be prepared"));
    return {};
  }
  PrepareJob job{.key = {connection.id(), id}, .type = frame.type,
                 .payload = std::move(frame.payload)};
  if (parts_.prepares.try_push(std::move(job))) {
    prepare_bytes_ += bytes;
  } else {
    fail(connection, id, make_error(Errc::exhausted, std::to_string(parts_.prepares.capacity()) +
                                                         " prompts wait to be prepared"));
  }
  return {};
}

Result<void> Server::handle_submit(Connection& connection, const Frame& frame) {
  const uint64_t id = frame.request_id;
  TRY_ASSIGN(const bool taken, take_id(connection, id, IdUse::running));
  if (!taken) return {};
  auto submit = submit_of(frame);
  if (!submit.ok()) {
    fail(connection, id, submit.error());
    return {};
  }
  if (!serving()) {
    fail(connection, id, make_error(Errc::unavailable, "the model is not loaded"));
    return {};
  }
  const KeptPrompt* prompt = connection.prompt(submit->prompt_id);
  if (prompt == nullptr) {
    fail(connection, id, make_error(Errc::not_found, "no prompt " +
                                                         std::to_string(submit->prompt_id),
                                    "prompt_id"));
    return {};
  }
  auto command = std::make_unique<SubmitCommand>();
  command->key = {connection.id(), id};
  command->prompt = prompt->tokens;
  command->constraint = prompt->constraint;
  command->salt = prompt->salt;
  command->boundaries = prompt->boundaries;
  command->received = parts_.clock.now();
  command->submit = std::move(*submit);
  to_loop(std::move(command));
  return {};
}

Result<void> Server::handle_stats(Connection& connection, uint64_t id) {
  if (serving()) {  // the loop answers between two steps, so that the sums are consistent
    to_loop(StatsCommand{.key = {connection.id(), id}});
    return {};
  }
  protocol::Stats stats;
  stats.state = state_.state;
  const ProcessMemory memory = read_process_memory();
  stats.resident_bytes = memory.resident_bytes;
  stats.anonymous_bytes = memory.anonymous_bytes;
  connection.queue(FrameType::stats_reply, id, stats.to_json());
  return {};
}

Result<void> Server::handle_resize(Connection& connection, const Frame& frame) {
  const uint64_t id = frame.request_id;
  TRY_ASSIGN(const bool taken, take_id(connection, id, IdUse::asking));
  if (!taken) return {};
  const auto wanted = resize_of(frame);
  if (!wanted.ok()) {
    fail(connection, id, wanted.error());
  } else if (!serving()) {
    fail(connection, id, make_error(Errc::unavailable, "the model is not loaded"));
  } else {
    to_loop(ResizeCommand{.key = {connection.id(), id}, .resize = *wanted});
  }
  return {};
}

Result<void> Server::handle_drain(Connection& connection, uint64_t id) {
  if (serving()) {
    to_loop(DrainCommand{.key = RequestKey{connection.id(), id}, .exit_by = {}});
  } else {
    connection.queue(FrameType::drained, id, Json::object());
  }
  return {};
}

void Server::handle_cancel(Connection& connection, uint64_t id) {
  const auto use = connection.use_of(id);
  if (use == IdUse::running) to_loop(CancelCommand{.key = {connection.id(), id}});
  if (use == IdUse::preparing) connection.give_up(id);
}

void Server::handle_release(Connection& connection, uint64_t id) {
  const auto use = connection.use_of(id);
  if (use == IdUse::prompt) connection.free(id);
  if (use == IdUse::preparing) connection.give_up(id);
}

}  // namespace tandem::engine
