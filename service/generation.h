// What the HTTP layer knows of the models: resolve a name, prepare a prompt, generate, tokenise. The
// supervisor's tenants implement it over the engines' sockets (service/tenant.h); tests of the HTTP
// layer bring a fake.
//
// Threads: every function may be called from any thread; one Generation and one Prompt belong to one
// thread at a time. Models live as long as the directory; a Prompt or a Generation must not outlive
// its Model.
//
// Errors, the same everywhere: not_found (no such model), invalid_argument and too_large (the
// request can never work; `path` is relative to the protocol message), exhausted (queue full: 429),
// unavailable (loading, draining, restarting, failed, or the engine was lost: 503),
// cancelled (a deadline passed). For exhausted and unavailable ask retry_after_s(). An unavailable
// whose `path` is kShortOfMemory: the model answers, but not this now (503 memory_pressure).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/protocol.h"
#include "base/result.h"
#include "memory_budget/role.h"
#include "policies/fair_queue.h"
#include "policies/profile.h"
#include "policies/sanitize/sanitize.h"

namespace tandem::service {

inline constexpr const char* kShortOfMemory = "memory";

using Role = budget::Role;
using budget::role_name;

enum class ModelState : uint8_t {
  stopped,   // unloaded by an administrator, or not started yet
  waiting,   // for memory: the gate of its start is closed, and opens by itself
  starting,  // process started or being adopted, no handshake yet
  loading,   // handshake done, weights not ready
  ready,
  draining,  // ordered stop
  backoff,   // crashed, waits for its restart
  failed,    // crashed too often: waits for `tandemctl model restart`
};
const char* model_state_name(ModelState state) noexcept;

struct ModelInfo {  // from the configuration: never changes
  std::string name;
  Role role = Role::default_model;
  std::vector<std::string> aliases;
  int64_t queue_max = 0;
  // Its servers are others' and requests leave this machine: whose may (docs/engines.md).
  bool leaves_machine = false;
  std::vector<std::string> allow_keys = {};
  std::vector<std::string> allow_classes = {};
};

// Whether a request of this key and class may go to the model: all may where it does not leave the machine.
bool may_use(const ModelInfo& model, std::string_view key_id, policies::QueueClass queue_class);

struct ModelStatus {
  ModelState state = ModelState::stopped;
  std::string message;  // why, when not ready
  int64_t pid = 0;      // 0: no process
  int64_t restarts = 0;      // after crashes, since tandemd started
  bool adopted = false;      // was running before this tandemd
  int64_t ready_unix_s = 0;  // when it became ready; 0: it is not
  int64_t slots = 0;
  int64_t slots_busy = 0;
  int64_t queue = 0;  // admitted, without a slot yet
  std::string instance_id;
  std::string weights_hash;
  std::optional<protocol::ModelFacts> facts;  // of the last ready engine
};

// How chats of one model are repaired: what was found out about it when it became ready, and the
// settings of the configuration.
struct ChatRules {
  policies::ModelProfile profile;
  policies::SanitizeSettings settings;
};

// One thing that happened to one choice of a generation. Each choice ends with exactly one terminal:
// an Event whose terminal() is true, or an Error.
struct GenerationEvent {
  size_t choice = 0;
  std::variant<protocol::Event, Error> body;

  [[nodiscard]] bool terminal() const {
    const auto* event = std::get_if<protocol::Event>(&body);
    return event == nullptr || event->terminal();
  }
};

// On whose behalf something is submitted, for the order of those that wait.
struct SubmitTerms {
  std::string key_id;   // public; empty: nobody's
  double weight = 1.0;  // of the key's share
  policies::QueueClass queue_class = policies::QueueClass::interactive;
  SteadyTime deadline = SteadyTime::max();  // past it there is no turn
};

// Where a request stood when it was accepted.
struct QueuePlace {
  int64_t position = 0;  // 1: next; 0: it did not have to wait
  int64_t wait_ms = 0;   // estimate, from how long slots were held lately
};

// A model's queue as status and metrics show it. The counts only rise.
struct QueueFigures {
  int64_t under_way = 0;  // in the engine
  int64_t waiting[policies::kQueueClasses] = {};
  int64_t oldest_wait_ms = 0;
  int64_t wait_estimate_ms = 0;  // of one that came now
  double drain_per_s = 0.0;      // 0: nothing was measured yet
  int64_t key_max = 0;           // waiting places of one key
  int64_t entered[policies::kQueueClasses] = {};
  int64_t expired[policies::kQueueClasses] = {};
  int64_t left[policies::kQueueClasses] = {};  // cancelled or lost before their turn
  int64_t refused_full = 0;
  int64_t refused_key = 0;
  int64_t refused_memory = 0;
  int64_t wait_us_total[policies::kQueueClasses] = {};  // of those that had a turn
  int64_t turns[policies::kQueueClasses] = {};
};

// Takes plain events where they come in, while the one who waits for them sleeps: a token then costs no change
// of threads. Called on the thread that reads the engine, one event at a time, and only inside of a
// next_event() that was given this tap. Must not block.
class EventTap {
 public:
  enum class Taken : uint8_t {
    no,        // left as it was: the one who waits is woken and gets it
    yes,
    yes_wake,  // taken, and the one who waits is woken without an event
  };
  virtual ~EventTap() = default;
  // A content event.
  virtual Taken take(const GenerationEvent& event) = 0;
};

// A prepared prompt inside the engine; released with the handle.
class Prompt {
 public:
  virtual ~Prompt() = default;
  [[nodiscard]] virtual const protocol::Prepared& prepared() const = 0;
};

// A running generation. Destroying it cancels what is still running.
class Generation {
 public:
  virtual ~Generation() = default;

  // The next event of any choice, in order per choice; nullopt when `deadline` passes first, or at
  // once when done(). Credit is granted back to the engine as events are taken.
  [[nodiscard]] virtual std::optional<GenerationEvent> next_event(SteadyTime deadline) = 0;
  // The same, but `tap` may be given some events instead; also empty when it wants the caller to wake.
  [[nodiscard]] virtual std::optional<GenerationEvent> next_event(SteadyTime deadline, EventTap& tap) {
    static_cast<void>(tap);
    return next_event(deadline);
  }
  // All choices have given their terminal.
  [[nodiscard]] virtual bool done() const = 0;
  // Asks the engine to stop; each open choice still ends with one terminal. Idempotent.
  virtual void cancel() = 0;
  // At the submit.
  [[nodiscard]] virtual QueuePlace place() const { return {}; }
};

class Model {
 public:
  virtual ~Model() = default;

  [[nodiscard]] virtual const ModelInfo& info() const = 0;
  [[nodiscard]] virtual ModelStatus status() const = 0;
  [[nodiscard]] virtual ChatRules chat_rules() const = 0;
  // Whole seconds, 1 to 600: until a slot is expected to be free (from the measured drain), or until
  // the engine is expected back.
  [[nodiscard]] virtual int64_t retry_after_s() const = 0;

  [[nodiscard]] virtual Result<std::unique_ptr<Prompt>> prepare(const protocol::Prepare& request,
                                                                SteadyTime deadline) = 0;
  // Admits and submits `choices.size()` >= 1 generations of one prompt: all of them or none.
  // `prompt_id` and `credit` of the submits are filled in here. Choices beyond the free slots wait
  // (service/tenant_queue.h); slots + queue_max bounds the admitted, past it, or past the key's share:
  // exhausted, with nothing sent. The prompt must live until the generation is done.
  [[nodiscard]] virtual Result<std::unique_ptr<Generation>> submit(
      const Prompt& prompt, std::vector<protocol::Submit> choices, const SubmitTerms& terms) = 0;

  [[nodiscard]] virtual Result<protocol::Tokens> tokenize(const protocol::Tokenize& request,
                                                          SteadyTime deadline) = 0;
  [[nodiscard]] virtual Result<protocol::Text> detokenize(const protocol::Detokenize& request,
                                                          SteadyTime deadline) = 0;
};

class ModelDirectory {
 public:
  virtual ~ModelDirectory() = default;
  // Configured name, "default", "optional" or an alias. An empty name is the default model.
  [[nodiscard]] virtual Result<Model*> resolve(std::string_view name) = 0;
  [[nodiscard]] virtual std::vector<Model*> all() = 0;  // default first
  // True from SIGTERM on: new requests get 503 and /readyz fails.
  [[nodiscard]] virtual bool draining() const = 0;
};

}  // namespace tandem::service
