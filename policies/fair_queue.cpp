#include "policies/fair_queue.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace tandem::policies {
namespace {

constexpr double kMeanWeight = 0.1;  // of the newest answer
// Keys that neither wait nor are served are kept while their counter says something; past so many
// only those that are ahead of the others.
constexpr size_t kIdleKeysMax = 1024;

}  // namespace

const char* queue_class_name(QueueClass value) noexcept {
  switch (value) {
    case QueueClass::interactive: return "interactive";
    case QueueClass::batch: return "batch";
  }
  CHECK_MSG(false, "queue class out of range");
}

std::optional<QueueClass> parse_queue_class(std::string_view name) noexcept {
  if (name == "interactive") return QueueClass::interactive;
  if (name == "batch") return QueueClass::batch;
  return std::nullopt;
}

std::map<std::string, FairQueue::Flow>::iterator FairQueue::least(Class& of) {
  auto best = of.flows.end();
  for (auto flow = of.flows.begin(); flow != of.flows.end(); ++flow) {
    if (flow->second.waiting.empty()) continue;
    // Of equal counters the ticket that came first: ids rise.
    if (best == of.flows.end() || flow->second.counter < best->second.counter ||
        (flow->second.counter == best->second.counter &&
         flow->second.waiting.front() < best->second.waiting.front())) {
      best = flow;
    }
  }
  return best;
}

void FairQueue::arrive(Arrival arrival) {
  CHECK(arrival.weight > 0 && arrival.prompt_tokens >= 0);
  Class& own = class_of(arrival.queue_class);
  if (own.waiting == 0) {
    for (const Class& other : classes_) own.counter = std::max(own.counter, other.counter);
  }
  const auto lowest = least(own);
  const double level = lowest == own.flows.end() ? own.level : lowest->second.counter;
  Flow& flow = own.flows[arrival.key];
  flow.weight = arrival.weight;
  if (flow.waiting.empty()) flow.counter = std::max(flow.counter, level);
  flow.waiting.push_back(arrival.ticket);
  ++own.waiting;
  const bool fresh = tickets_
                         .emplace(arrival.ticket, Ticket{.key = std::move(arrival.key),
                                                         .queue_class = arrival.queue_class,
                                                         .prompt_tokens = arrival.prompt_tokens,
                                                         .deadline_us = arrival.deadline_us})
                         .second;
  CHECK_MSG(fresh, "a ticket is used twice");
  if (own.flows.size() > kIdleKeysMax) forget_idle(own);
}

// What a returning key would be lifted to anyway need not be remembered.
void FairQueue::forget_idle(Class& of) {
  const auto lowest = least(of);
  const double level = lowest == of.flows.end() ? of.level : lowest->second.counter;
  std::erase_if(of.flows, [level](const auto& entry) {
    const Flow& flow = entry.second;
    return flow.waiting.empty() && flow.served == 0 && flow.counter <= level;
  });
}

double FairQueue::expected_finish(Class& of) const {
  const auto flow = least(of);
  const Ticket& ticket = tickets_.at(flow->second.waiting.front());
  const double cost = options_.prices.prompt * static_cast<double>(ticket.prompt_tokens) +
                      options_.prices.answer * of.answer_mean;
  return of.counter + cost / of.share;
}

void FairQueue::pay(const Ticket& ticket, double price) {
  Class& own = class_of(ticket.queue_class);
  own.counter += price / own.share;
  Flow& flow = own.flows.at(ticket.key);
  flow.counter += price / flow.weight;
  if (ticket.key == own.last) own.level = flow.counter;
}

std::optional<uint64_t> FairQueue::next() {
  Class* chosen = nullptr;
  double soonest = 0.0;
  for (Class& candidate : classes_) {
    if (candidate.waiting == 0) continue;
    const double finish = expected_finish(candidate);
    if (chosen != nullptr && finish >= soonest) continue;
    chosen = &candidate;
    soonest = finish;
  }
  if (chosen == nullptr) return std::nullopt;
  const auto at = least(*chosen);
  Flow& flow = at->second;
  const uint64_t id = flow.waiting.front();
  flow.waiting.pop_front();
  --chosen->waiting;
  ++flow.served;
  chosen->last = at->first;
  Ticket& ticket = tickets_.at(id);
  ticket.served = true;
  pay(ticket, options_.prices.prompt * static_cast<double>(ticket.prompt_tokens));
  return id;
}

void FairQueue::charge(uint64_t id, int64_t answer_tokens) {
  const auto at = tickets_.find(id);
  if (at == tickets_.end() || !at->second.served) return;
  at->second.answer_tokens += answer_tokens;
  pay(at->second, options_.prices.answer * static_cast<double>(answer_tokens));
}

void FairQueue::finish(uint64_t id, int64_t cached_tokens) {
  const auto at = tickets_.find(id);
  if (at == tickets_.end() || !at->second.served) return;
  const Ticket& ticket = at->second;
  const int64_t cached = std::clamp<int64_t>(cached_tokens, 0, ticket.prompt_tokens);
  pay(ticket, (options_.prices.cached - options_.prices.prompt) * static_cast<double>(cached));
  Class& own = class_of(ticket.queue_class);
  own.answer_mean += kMeanWeight * (static_cast<double>(ticket.answer_tokens) - own.answer_mean);
  --own.flows.at(ticket.key).served;
  tickets_.erase(at);
}

bool FairQueue::leave(uint64_t id) {
  const auto at = tickets_.find(id);
  if (at == tickets_.end() || at->second.served) return false;
  Class& own = class_of(at->second.queue_class);
  std::erase(own.flows.at(at->second.key).waiting, id);
  --own.waiting;
  tickets_.erase(at);
  return true;
}

std::vector<uint64_t> FairQueue::expire(int64_t now_us) {
  std::vector<uint64_t> late;
  for (const auto& [id, ticket] : tickets_) {
    if (!ticket.served && ticket.deadline_us <= now_us) late.push_back(id);
  }
  std::sort(late.begin(), late.end());
  for (const uint64_t id : late) CHECK(leave(id));
  return late;
}

size_t FairQueue::waiting() const {
  size_t sum = 0;
  for (const Class& each : classes_) sum += each.waiting;
  return sum;
}

size_t FairQueue::waiting_in(QueueClass queue_class) const { return class_of(queue_class).waiting; }

size_t FairQueue::waiting_of(const std::string& key) const {
  size_t sum = 0;
  for (const Class& each : classes_) {
    const auto flow = each.flows.find(key);
    if (flow != each.flows.end()) sum += flow->second.waiting.size();
  }
  return sum;
}

int64_t FairQueue::ahead_of(uint64_t id) const {
  const auto at = tickets_.find(id);
  if (at == tickets_.end() || at->second.served) return 0;
  const Class& own = class_of(at->second.queue_class);
  const Flow& mine = own.flows.at(at->second.key);
  const auto place = std::find(mine.waiting.begin(), mine.waiting.end(), id);
  const auto before = static_cast<double>(place - mine.waiting.begin());
  double ahead = before;
  for (const auto& [key, flow] : own.flows) {
    if (&flow == &mine || flow.waiting.empty()) continue;
    // One round serves each key by its weight; those with less on their counter are a turn ahead.
    const double turns = before * flow.weight / mine.weight + (flow.counter <= mine.counter ? 1.0 : 0.0);
    ahead += std::min(static_cast<double>(flow.waiting.size()), turns);
  }
  for (const Class& other : classes_) {
    if (&other == &own) continue;
    ahead += std::min(static_cast<double>(other.waiting), (ahead + 1) * other.share / own.share);
  }
  return static_cast<int64_t>(ahead);
}

double FairQueue::counter(QueueClass queue_class, const std::string& key) const {
  const Class& own = class_of(queue_class);
  const auto flow = own.flows.find(key);
  return flow == own.flows.end() ? 0.0 : flow->second.counter;
}

size_t FairQueue::keys_known() const {
  size_t sum = 0;
  for (const Class& each : classes_) sum += each.flows.size();
  return sum;
}

}  // namespace tandem::policies
