// The threads of an engine process with the fake model, inside the test: a real socket, the real io
// thread, workers and loop.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "engine/run/loop.h"
#include "engine/run/prepare_workers.h"
#include "engine/run/server.h"
#include "tests/support/fake_model.h"

namespace tandem::tests {

struct EngineThreadsOptions {
  int64_t slots = 4;
  int64_t queue_max = 8;
  int64_t context_tokens = 65'536;
  bool loaded = true;
  size_t prepare_bytes_max = size_t{256} << 20;
  engine::ConnectionLimits connection;
};

class EngineThreads {
 public:
  EngineThreads(const std::string& socket, const EngineThreadsOptions& options)
      : options_(options),
        runner_({.vocab = kFakeVocab,
                 .rows_max = 4096,
                 .logit_rows_max = options.slots + 32,
                 .items_max = options.slots}),
        loop_inbox_(1024),
        io_inbox_(4096),
        prepares_(64) {
    store_ = engine::StateStore::create(
                 ledger_, {.page_bytes = 64, .recurrent_bytes = 0,
                           .tokens_max = options.context_tokens},
                 options.context_tokens / engine::kPageTokens * 64 * options.slots)
                 .value();
    engine::ServerOptions server;
    server.identity.model = "fake";
    server.identity.instance_id = "instance";
    server.connection = options.connection;
    server.prepare_bytes_max = options.prepare_bytes_max;
    server_ = std::make_unique<engine::Server>(
        engine::Server::Parts{io_inbox_, loop_inbox_, prepares_, clock_}, server,
        engine::Listener::create(socket).value(), Fd());
    io_ = std::jthread([this] { server_->run(); });
    if (options.loaded) load();
  }
  EngineThreads(const EngineThreads&) = delete;
  EngineThreads& operator=(const EngineThreads&) = delete;
  ~EngineThreads() {
    loop_inbox_.close();
    if (loop_thread_.joinable()) loop_thread_.join();
    workers_.reset();
    tell(engine::CloseMessage{clock_.now()});
    io_.join();
  }

  void load() {
    workers_ = std::make_unique<engine::PrepareWorkers>(
        engine::PrepareContext{text_, constraints_, options_.context_tokens}, prepares_, io_inbox_, 2);
    loop_ = std::make_unique<engine::Loop>(
        engine::Loop::Parts{text_, runner_, *store_, ledger_, loop_inbox_, io_inbox_, clock_},
        engine::LoopOptions{.context_tokens = options_.context_tokens,
                            .slots = options_.slots,
                            .queue_max = options_.queue_max,
                            .batch_tokens = 4096,
                            .seed = 1});
    loop_thread_ = std::jthread([this] { loop_->run(); });
    protocol::ModelFacts facts;
    facts.slots = options_.slots;
    facts.vocab_size = kFakeVocab;
    facts.context_tokens_max = options_.context_tokens;
    tell(engine::StateMessage{{protocol::EngineState::ready, "", facts}});
  }
  void fail(std::string why) {
    tell(engine::StateMessage{{protocol::EngineState::failed, std::move(why), {}}});
  }

 private:
  void tell(engine::IoMessage message) {
    TANDEM_CHECK_2(io_inbox_.try_push(std::move(message)), "inbox");
  }

  EngineThreadsOptions options_;
  SystemClock clock_;
  budget::Ledger ledger_;
  FakeText text_;
  engine::ConstraintCache constraints_{text_.token_trie()};
  FakeRunner runner_;
  std::unique_ptr<engine::StateStore> store_;
  engine::LoopInbox loop_inbox_;
  engine::IoInbox io_inbox_;
  engine::PrepareQueue prepares_;
  std::unique_ptr<engine::Server> server_;
  std::unique_ptr<engine::PrepareWorkers> workers_;
  std::unique_ptr<engine::Loop> loop_;
  std::jthread io_;
  std::jthread loop_thread_;
};

}  // namespace tandem::tests
