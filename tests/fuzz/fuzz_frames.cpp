// Bytes of a client -> frame decoder -> every message decoder -> prepare jobs and the step loop with
// the fake model. The harness breaks off when a request gets two terminals, an event after its end or
// a token without credit; here every message that decodes must also survive a round trip.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/frame.h"
#include "base/protocol.h"
#include "engine/run/connection.h"
#include "engine/run/prepare_workers.h"
#include "tests/support/loop_harness.h"

namespace tandem::tests {
namespace {

constexpr size_t kFramesMax = 64;

// Decodes; what decodes must give the same text when encoded, decoded and encoded again.
template <typename Message>
std::optional<Message> walk(const Json& json) {
  auto message = Message::from_json(json);
  if (!message.ok()) return std::nullopt;
  const std::string text = message->to_json().dump();
  const auto parsed = parse_json(text);
  TANDEM_CHECK_2(parsed.ok(), "what we write is JSON");
  const auto again = Message::from_json(*parsed);
  TANDEM_CHECK_2(again.ok() && again->to_json().dump() == text, "round trip");
  return std::move(*message);
}

class Client {
 public:
  void handle(const Frame& frame) {
    const auto json = frame.payload.empty() ? Result<Json>(Json::object())
                                            : parse_json(frame.payload, {.bytes_max = 1 << 20});
    if (!json.ok()) return;
    const uint64_t id = frame.request_id;
    switch (frame.type) {
      case FrameType::prepare:
      case FrameType::render: walk<protocol::Prepare>(*json); return prepare(frame);
      case FrameType::tokenize: walk<protocol::Tokenize>(*json); return prepare(frame);
      case FrameType::detokenize: walk<protocol::Detokenize>(*json); return prepare(frame);
      case FrameType::submit: return submit(id, walk<protocol::Submit>(*json));
      case FrameType::cancel: h_.cancel(key(id)); return;
      case FrameType::credit:
        if (const auto credit = walk<protocol::Credit>(*json)) h_.credit(key(id), credit->events);
        return;
      case FrameType::release: connection_.free(id); return;
      case FrameType::stats: h_.push(engine::StatsCommand{{engine::ConnectionId{2}, 1}}); return;
      case FrameType::resize:
        if (const auto wanted = walk<protocol::Resize>(*json)) {
          h_.push(engine::ResizeCommand{{engine::ConnectionId{2}, 2}, *wanted});
        }
        return;
      case FrameType::drain: h_.push(engine::DrainCommand{.key = {}, .exit_by = {}}); return;
      case FrameType::hello: walk<protocol::Hello>(*json); return;
      case FrameType::welcome: walk<protocol::Welcome>(*json); return;
      case FrameType::prepared: walk<protocol::Prepared>(*json); return;
      case FrameType::event: walk<protocol::Event>(*json); return;
      case FrameType::stats_reply: walk<protocol::Stats>(*json); return;
      case FrameType::resized: walk<protocol::Resized>(*json); return;
      case FrameType::tokens: walk<protocol::Tokens>(*json); return;
      case FrameType::text: walk<protocol::Text>(*json); return;
      case FrameType::state: walk<protocol::StateChange>(*json); return;
      case FrameType::failed: (void)protocol::error_from_json(*json); return;
      default: return;
    }
  }

  void turn() { h_.turn(); }
  void end() {
    h_.lose(1);
    h_.run();
    TANDEM_CHECK_2(h_.store->sequences() == 0, "a lost connection frees everything");
  }

 private:
  static engine::RequestKey key(uint64_t id) { return {engine::ConnectionId{1}, id}; }

  void prepare(const Frame& frame) {
    const bool prompt = frame.type == FrameType::prepare;
    if (!take(frame.request_id, prompt ? engine::IdUse::preparing : engine::IdUse::asking)) return;
    auto message = engine::answer_prepare_job(
        {h_.text, constraints_, 256}, {key(frame.request_id), frame.type, frame.payload});
    const auto parsed = parse_json(message.payload);
    TANDEM_CHECK_2(parsed.ok(), "an answer is JSON");
    if (message.type != FrameType::prepared) return connection_.free(frame.request_id);
    TANDEM_CHECK_2(connection_.keep_prompt(frame.request_id, std::move(message.prompt)).ok(),
                   "a prompt of 256 tokens");
  }

  void submit(uint64_t id, std::optional<protocol::Submit> submit) {
    if (!submit) return;
    const engine::KeptPrompt* prompt = connection_.prompt(submit->prompt_id);
    if (prompt == nullptr || !take(id, engine::IdUse::running)) return;
    h_.submit(key(id), prompt->tokens, std::move(*submit), prompt->constraint);
  }

  [[nodiscard]] bool take(uint64_t id, engine::IdUse use) {
    const auto taken = connection_.take(id, use);
    return taken.ok() && *taken;
  }

  LoopHarness h_;
  engine::ConstraintCache constraints_{h_.text.token_trie()};
  engine::Connection connection_{engine::ConnectionId{1}, Fd(), {}};
};

}  // namespace
}  // namespace tandem::tests

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::FrameDecoder decoder(1 << 20);
  tandem::tests::Client client;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  size_t frames = 0;
  while (!bytes.empty() && frames < tandem::tests::kFramesMax) {
    // Any chunking gives the same frames: pieces of 1 to 97 bytes.
    const size_t piece = std::min<size_t>(bytes.size(), 1 + (bytes.size() * 31) % 97);
    decoder.feed(bytes.substr(0, piece));
    bytes.remove_prefix(piece);
    while (frames < tandem::tests::kFramesMax) {
      auto frame = decoder.next();
      if (!frame.ok()) return client.end(), 0;
      if (!frame->has_value()) break;
      client.handle(**frame);
      client.turn();
      ++frames;
    }
  }
  for (int i = 0; i < 20; ++i) client.turn();
  client.end();
  return 0;
}
