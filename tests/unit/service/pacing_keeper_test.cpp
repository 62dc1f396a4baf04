// PacingKeeper over two tenants: which configurations are paced, and what the optional tenant is told.
#include "service/pacing_keeper.h"

#include <thread>

#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

Config pair_of(const std::string& mode) {
  Config config;
  config.default_model.name = "alpha";
  config.optional_model = ModelConfig{};
  config.optional_model->name = "beta";
  config.lease.mode = mode;
  return config;
}

}  // namespace

TEST_CASE("pacing: where no lease keeps order, unless it is switched off or nothing is shared") {
  CHECK_FALSE(needs_pacing(pair_of("on")));
  CHECK(needs_pacing(pair_of("pace")));
  CHECK_FALSE(needs_pacing(pair_of("off")));
  Config foreign = pair_of("on");
  foreign.optional_model->engine = "llama-server";
  CHECK(needs_pacing(foreign));
  foreign.optional_model->engine = "remote";
  CHECK_FALSE(needs_pacing(foreign));
  Config first = pair_of("on");
  first.default_model.engine = "vllm";
  CHECK(needs_pacing(first));
  Config alone = pair_of("pace");
  alone.optional_model.reset();
  CHECK_FALSE(needs_pacing(alone));
}

// The default model's tokens come every 2 ms and the canary says it can do one in a microsecond: whatever the optional
// model does meanwhile is too much.
TEST_CASE("pacing: a slowed default model holds the optional one back, step by step, and lets it come back") {
  World world("tokens 100000\ntokens_per_second 500\n", "tokens 100000\ntokens_per_second 50\n");
  world.begin();
  REQUIRE(world.until_ready(0));
  REQUIRE(world.until_ready(1));
  Tenant& first = world.tenant(0);
  Tenant& second = world.tenant(1);
  PacingKeeper keeper(first, second, [] { return int64_t{1}; });
  int64_t now_ms = 1'000'000;
  const auto look = [&] { keeper.look(now_ms += 2'000); };
  const auto submit = [](Tenant& tenant, int64_t tokens) {
    auto generation = tenant.submit(*prepare_text(tenant), {{.max_tokens = tokens}}, {});
    REQUIRE(generation.ok());
    return std::move(*generation);
  };
  auto stream = submit(first, 100'000);
  for (int i = 0; i < 30; ++i) REQUIRE(stream->next_event(soon()).has_value());
  const protocol::Prepare longer{.input = protocol::PrepareText{.text = std::string(2049, 'x')}};
  look();
  CHECK(keeper.json().find("stage")->as_integer() == 0);  // the optional model does nothing
  CHECK(keeper.json().find("requests_max")->is_null());
  CHECK(second.prepare(longer, soon()).ok());

  auto beside = submit(second, 100'000);
  REQUIRE(beside->next_event(soon()).has_value());
  for (int stage = 1; stage <= policies::kPacingStageMax; ++stage) {
    look();
    CHECK(keeper.json().find("stage")->as_integer() == stage);
  }
  CHECK(keeper.json().find("requests_max")->as_integer() == 0);
  const auto refused = second.prepare(longer, soon());
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::unavailable);
  CHECK(refused.error().message.find("2049 tokens, model beta takes at most 128 while") != std::string::npos);
  CHECK(first.prepare(longer, soon()).ok());
  auto held = submit(second, 5);
  CHECK_FALSE(held->next_event(soon(std::chrono::milliseconds(50))).has_value());

  beside.reset();  // cancelled
  const auto end = soon();
  while (second.queue_figures().under_way > 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  for (int i = 0; i < 8; ++i) look();  // nothing of the optional model's in the window: what is slow is not its doing
  CHECK(keeper.json().find("stage")->as_integer() == policies::kPacingStageMax - 1);
  CHECK(held->next_event(soon()).has_value());
  held.reset();
  stream.reset();
  for (int i = 0; i < 30; ++i) look();
  CHECK(keeper.json().find("stage")->as_integer() == 0);
  CHECK(second.prepare(longer, soon()).ok());
}

}  // namespace tandem::service
