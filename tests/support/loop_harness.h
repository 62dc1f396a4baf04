// A Loop over the fake model, with the io side played by the test. It watches what every client would
// see and breaks off (CHECK) when a request gets two terminal frames, an event after its end, a token
// beyond its credit, or when the loop's own integrity check fails.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/frame.h"
#include "engine/run/loop.h"
#include "tests/support/fake_model.h"
#include "tests/support/typed_answer.h"

namespace tandem::tests {

struct HarnessOptions {
  int64_t slots = 4;
  int64_t queue_max = 8;
  int64_t context_tokens = 256;
  int64_t kv_tokens = 1024;  // pages of 32
  int64_t end_every = 0;
  int64_t recurrent_bytes = 64;
  bool commit = false;
  int64_t mask_bytes = 0;
  bool prefixes = true;
  int64_t checkpoints = 8;  // states
  const engine::BudgetPlanner* planner = nullptr;
};

struct Seen : TypedAnswer {
  std::optional<protocol::FinishEvent> finish;
  std::optional<Error> error;
  int64_t credit = 0;
  [[nodiscard]] bool ended() const { return finish || error; }
};

class LoopHarness {
 public:
  explicit LoopHarness(const HarnessOptions& options = {})
      : runner({.vocab = kFakeVocab,
                .rows_max = 64 + options.slots + 64,
                .logit_rows_max = options.slots + 32,
                .items_max = options.slots},
               options.end_every),
        inbox(1024),
        io(1024) {
    auto made = engine::StateStore::create(
        ledger,
        {.page_bytes = 4096, .recurrent_bytes = options.recurrent_bytes,
         .tokens_max = options.context_tokens},
        options.kv_tokens / engine::kPageTokens * 4096, engine::kExtentBytesDefault,
        options.commit ? engine::Commit::now : engine::Commit::at_first_use,
        engine::PrefixOptions{.on = options.prefixes,
                              .checkpoint_bytes = options.checkpoints * options.recurrent_bytes,
                              .seed = 5});
    store = std::move(made).value();
    if (options.commit) TANDEM_CHECK_2(store->keep_states(options.slots).ok(), "states");
    loop = std::make_unique<engine::Loop>(
        engine::Loop::Parts{text, runner, *store, ledger, inbox, io, clock, options.planner},
        engine::LoopOptions{.context_tokens = options.context_tokens,
                            .slots = options.slots,
                            .queue_max = options.queue_max,
                            .batch_tokens = 64 + options.slots + 64,
                            .chunk_tokens = 64,
                            .seed = 7,
                            .commit = options.commit,
                            .mask_bytes = options.mask_bytes});
  }

  static engine::RequestKey key(uint64_t connection, uint64_t id) {
    return {engine::ConnectionId{connection}, id};
  }
  void push(engine::LoopCommand command) {
    TANDEM_CHECK_2(inbox.try_push(std::move(command)), "inbox");
  }
  void submit(const engine::RequestKey& k, std::vector<int32_t> prompt, protocol::Submit submit,
              engine::ConstraintPtr constraint = nullptr, std::string salt = "",
              std::vector<int64_t> boundaries = {}) {
    seen[k].credit = submit.credit;
    auto command = std::make_unique<engine::SubmitCommand>();
    command->key = k;
    command->submit = std::move(submit);
    command->prompt = std::move(prompt);
    command->constraint = std::move(constraint);
    command->salt = std::move(salt);
    command->boundaries = std::move(boundaries);
    command->received = clock.now();
    push(std::move(command));
  }
  void cancel(const engine::RequestKey& k) { push(engine::CancelCommand{k}); }
  void credit(const engine::RequestKey& k, int64_t events) {
    seen[k].credit += events;
    push(engine::CreditCommand{k, events});
  }
  void lose(uint64_t connection) {
    lost.push_back(engine::ConnectionId{connection});
    push(engine::ConnectionLostCommand{engine::ConnectionId{connection}});
  }

  // One turn of the loop, and everything it sent.
  bool turn() {
    const bool worked = loop->turn();
    clock.advance(std::chrono::milliseconds(1));
    while (auto message = io.try_pop()) take(*message);
    const auto sound = loop->check_integrity();
    TANDEM_CHECK_2(sound.ok(), "integrity");
    return worked;
  }
  // Until nothing happens any more.
  int run(int turns_max = 100'000) {
    int turns = 0;
    while (turn()) TANDEM_CHECK_2(++turns < turns_max, "the loop never settles");
    return turns;
  }

  budget::Ledger ledger;
  FakeText text;
  FakeRunner runner;
  FakeClock clock;
  engine::LoopInbox inbox;
  engine::IoInbox io;
  std::unique_ptr<engine::StateStore> store;
  std::unique_ptr<engine::Loop> loop;
  std::map<engine::RequestKey, Seen> seen;
  std::vector<engine::ConnectionId> lost;
  std::vector<protocol::EngineState> states;
  std::vector<uint64_t> ended_order;
  int drained = 0;
  std::optional<protocol::Stats> last_stats;
  std::optional<protocol::Resized> last_resized;

 private:
  void take(engine::IoMessage& message) {
    if (auto* state = std::get_if<engine::StateMessage>(&message)) {
      states.push_back(state->change.state);
    }
    auto* frames = std::get_if<engine::OutgoingFrames>(&message);
    if (frames == nullptr) return;
    for (const auto connection : lost) {
      TANDEM_CHECK_2(connection != frames->connection, "frames for a lost connection");
    }
    FrameDecoder decoder;
    decoder.feed(frames->bytes);
    std::vector<uint64_t> ended;
    while (auto frame = std::move(decoder.next()).value()) {
      const engine::RequestKey k{frames->connection, frame->request_id};
      if (take_frame(seen[k], *frame)) ended.push_back(k.id);
    }
    TANDEM_CHECK_2(ended == frames->ended, "ids told as ended");
    ended_order.insert(ended_order.end(), ended.begin(), ended.end());
  }

  // True for a terminal frame.
  bool take_frame(Seen& request, const Frame& frame) {
    const Json json = parse_json(frame.payload).value();
    if (frame.type == FrameType::drained) ++drained;
    if (frame.type == FrameType::stats_reply) last_stats = protocol::Stats::from_json(json).value();
    if (frame.type == FrameType::resized) {
      last_resized = protocol::Resized::from_json(json).value();
      return true;
    }
    if (frame.type == FrameType::failed) {
      TANDEM_CHECK_2(!request.ended(), "a second end");
      request.error = protocol::error_from_json(json);
      return true;
    }
    if (frame.type != FrameType::event) return false;
    TANDEM_CHECK_2(!request.ended(), "an event after the end");
    auto event = protocol::Event::from_json(json).value();
    const bool is_prompt = std::holds_alternative<protocol::PromptEvent>(event.body);
    TANDEM_CHECK_2(!is_prompt || (request.prompt.empty() && request.tokens.empty()),
                   "the prompt comes first, once");
    request.add(event);
    const auto made = static_cast<int64_t>(request.tokens.size());
    TANDEM_CHECK_2(made <= request.credit, "a token without credit");
    auto* finish = std::get_if<protocol::FinishEvent>(&event.body);
    if (finish == nullptr) return false;
    request.finish = std::move(*finish);
    return true;
  }
};

inline std::vector<int32_t> prompt_of(std::string_view text) {
  std::vector<int32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

inline protocol::Submit greedy(int64_t max_tokens) {
  protocol::Submit submit;
  submit.prompt_id = 1;
  submit.max_tokens = max_tokens;
  submit.sampling.temperature = 0;
  return submit;
}

}  // namespace tandem::tests
