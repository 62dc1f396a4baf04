// FairQueue: who is served next of those that wait for one model. Two classes (interactive, batch) share
// the model by tokens, and inside a class so do the API keys: each key has a virtual counter of the tokens
// it was served, divided by its weight, and the waiting key with the least counter is next (virtual token
// counters, arXiv 2401.00588). A key that comes back is lifted to the least counter of those that wait: idle
// time is no credit, and a key with one request stands before the hundreds of another. Within a key the
// order is that of arrival.
//
// What is charged: the prompt when a ticket is served, each token of its answer as it is made, and at its
// end the part of the prompt that was cached is given back to the price of cached tokens.
//
// Bound. C is the most that one ticket can cost, R how many may be served at a time. While two keys of one
// class both wait all the time, the tokens W that they are served in any span of it differ by
//   |W_a / w_a - W_b / w_b| <= R * C / w_a + R * C / w_b
// because a key is only chosen while its counter is the least, and gains at most R * C afterwards.
//
// A class is chosen like a key, by its counter and what its next ticket is expected to cost: interactive has
// 1 - batch_floor of the tokens when both wait, batch the rest, and one alone has everything. A single batch
// request behind a stream of interactive ones is therefore late, never starved.
//
// Pure: one thread, times as numbers. Tickets are the caller's, each used once. The caller bounds how many
// wait and what one key may have (waiting(), waiting_of()).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace tandem::policies {

enum class QueueClass : uint8_t { interactive, batch };
inline constexpr size_t kQueueClasses = 2;
const char* queue_class_name(QueueClass value) noexcept;
std::optional<QueueClass> parse_queue_class(std::string_view name) noexcept;

// Of one token each, in units of a prompt token.
struct TokenPrices {
  double prompt = 1.0;
  double cached = 0.1;
  double answer = 2.0;
};

class FairQueue {
 public:
  static constexpr int64_t kNoDeadline = std::numeric_limits<int64_t>::max();

  struct Options {
    TokenPrices prices;
    double batch_floor = 0.1;  // 0 < batch_floor < 1
  };
  struct Arrival {
    uint64_t ticket = 0;
    std::string key;     // public id; empty is a key like any other
    double weight = 1.0; // > 0; the newest one holds for the key
    QueueClass queue_class = QueueClass::interactive;
    int64_t prompt_tokens = 0;
    int64_t deadline_us = kNoDeadline;  // of the wait
  };

  explicit FairQueue(Options options) : options_(options) {}

  void arrive(Arrival arrival);
  // The next ticket, which counts as served from now on and has paid its prompt. None: nobody waits.
  std::optional<uint64_t> next();
  // Tokens of the answer of a served ticket. Unknown tickets are ignored, here and below.
  void charge(uint64_t ticket, int64_t answer_tokens);
  // A served ticket ended; `cached_tokens` of its prompt were not computed.
  void finish(uint64_t ticket, int64_t cached_tokens);
  // A waiting ticket goes away: true. One that is served, or unknown: false, nothing happens.
  bool leave(uint64_t ticket);
  // Takes out those whose deadline is at or before `now_us`; in order of arrival.
  std::vector<uint64_t> expire(int64_t now_us);

  [[nodiscard]] size_t waiting() const;
  [[nodiscard]] size_t waiting_in(QueueClass queue_class) const;
  // In both classes.
  [[nodiscard]] size_t waiting_of(const std::string& key) const;
  // How many are expected to be served before this waiting ticket, if nobody comes or leaves; 0 for
  // one that does not wait. An estimate: tickets cost differently.
  [[nodiscard]] int64_t ahead_of(uint64_t ticket) const;
  // Virtual tokens of a key (its counter), for tests and status; 0: not known.
  [[nodiscard]] double counter(QueueClass queue_class, const std::string& key) const;
  [[nodiscard]] size_t keys_known() const;

 private:
  struct Flow {
    double weight = 1.0;
    double counter = 0.0;
    std::deque<uint64_t> waiting;
    size_t served = 0;  // tickets that are being served
  };
  struct Class {
    double share = 0.0;
    double counter = 0.0;
    std::string last;          // key that was chosen last, and its counter: what one is lifted to
    double level = 0.0;        // that comes while nobody waits
    double answer_mean = 256;  // tokens of an answer, recent ones weigh more
    size_t waiting = 0;
    std::map<std::string, Flow> flows;
  };
  struct Ticket {
    std::string key;
    QueueClass queue_class = QueueClass::interactive;
    int64_t prompt_tokens = 0;
    int64_t answer_tokens = 0;
    int64_t deadline_us = kNoDeadline;
    bool served = false;
  };

  Class& class_of(QueueClass value) { return classes_[static_cast<size_t>(value)]; }
  [[nodiscard]] const Class& class_of(QueueClass value) const {
    return classes_[static_cast<size_t>(value)];
  }
  [[nodiscard]] static std::map<std::string, Flow>::iterator least(Class& of);
  [[nodiscard]] double expected_finish(Class& of) const;
  void pay(const Ticket& ticket, double price);
  void forget_idle(Class& of);

  const Options options_;
  std::array<Class, kQueueClasses> classes_{{{.share = 1.0 - options_.batch_floor}, {.share = options_.batch_floor}}};
  std::unordered_map<uint64_t, Ticket> tickets_;
};

}  // namespace tandem::policies
