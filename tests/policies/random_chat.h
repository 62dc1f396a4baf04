// Random requests with the oddities of real clients, from a seed: late and blank system messages,
// parts, thoughts, rounds of calls with missing, repeated and unknown ids, broken arguments, every
// spelling of the thinking switch. The same seed gives the same request.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "policies/sanitize/sanitize.h"

namespace tandem::policies {

class RandomChat {
 public:
  explicit RandomChat(uint64_t seed) : random_(seed) {}

  Json request();             // messages and parameters; may be one that is refused
  Json::Array first_turns();  // a chat that waits for an answer
  // The same chat later: an answer, then what leads to the next one.
  void grow(Json::Array& messages);
  Json object(int depth);  // random JSON
  TargetFacts target();
  ModelProfile profile();
  size_t below(size_t limit) { return static_cast<size_t>(random_() % limit); }

 private:
  bool chance(size_t percent) { return below(100) < percent; }
  std::string words();
  Json content();
  Json value(int depth);
  Json call();
  Json arguments();
  void add_round(Json::Array& messages, bool complete);
  void add_system(Json::Array& messages);
  void add_user(Json::Array& messages);
  void add_parameters(Json& request);

  std::mt19937_64 random_;
  size_t calls_ = 0;
};

}  // namespace tandem::policies
