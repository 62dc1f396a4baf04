#include "memory_budget/ledger.h"

#include <utility>

namespace tandem::budget {
namespace {

size_t index(Tag tag) { return static_cast<size_t>(tag); }

}  // namespace

const char* tag_name(Tag tag) noexcept {
  switch (tag) {
    case Tag::weights: return "weights";
    case Tag::kv: return "kv";
    case Tag::recurrent_state: return "recurrent_state";
    case Tag::workspace: return "workspace";
    case Tag::tokenizer: return "tokenizer";
    case Tag::checkpoint: return "checkpoint";
  }
  return "unknown";
}

Reservation::Reservation(Reservation&& other) noexcept
    : ledger_(std::exchange(other.ledger_, nullptr)),
      tag_(other.tag_),
      bytes_(std::exchange(other.bytes_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    release();
    ledger_ = std::exchange(other.ledger_, nullptr);
    tag_ = other.tag_;
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Reservation::release() {
  if (ledger_ != nullptr) ledger_->give_back(tag_, bytes_);
  ledger_ = nullptr;
  bytes_ = 0;
}

Result<void> Reservation::resize(int64_t bytes) {
  CHECK(ledger_ != nullptr && bytes >= 0);
  if (bytes > bytes_) {
    TRY(ledger_->take(tag_, bytes - bytes_));
  } else {
    ledger_->give_back(tag_, bytes_ - bytes);
  }
  bytes_ = bytes;
  return {};
}

Ledger::Ledger() { limit_.fill(kUnlimited); }

Ledger::~Ledger() { CHECK_MSG(held_total() == 0, "memory was not given back to the ledger"); }

void Ledger::set_limit(Tag tag, int64_t bytes_max) {
  CHECK(bytes_max >= 0);
  MutexLock lock(mutex_);
  limit_[index(tag)] = bytes_max;
}

Result<Reservation> Ledger::reserve(Tag tag, int64_t bytes) {
  TRY(take(tag, bytes));
  return Reservation(this, tag, bytes);
}

Result<void> Ledger::take(Tag tag, int64_t bytes) {
  CHECK(bytes >= 0);
  MutexLock lock(mutex_);
  const size_t i = index(tag);
  if (std::exchange(fail_next_[i], false)) {
    return make_error(Errc::exhausted, std::string(tag_name(tag)) + ": refused by a test");
  }
  if (bytes > limit_[i] - held_[i]) {
    return make_error(Errc::exhausted, std::string(tag_name(tag)) + ": " + std::to_string(bytes) +
                                           " bytes wanted, " + std::to_string(held_[i]) + " of " +
                                           std::to_string(limit_[i]) + " held");
  }
  held_[i] += bytes;
  return {};
}

void Ledger::give_back(Tag tag, int64_t bytes) {
  MutexLock lock(mutex_);
  held_[index(tag)] -= bytes;
  CHECK(held_[index(tag)] >= 0);
}

int64_t Ledger::held(Tag tag) const {
  MutexLock lock(mutex_);
  return held_[index(tag)];
}

int64_t Ledger::limit(Tag tag) const {
  MutexLock lock(mutex_);
  return limit_[index(tag)];
}

int64_t Ledger::held_total() const {
  MutexLock lock(mutex_);
  int64_t sum = 0;
  for (const int64_t h : held_) sum += h;
  return sum;
}

void Ledger::fail_next(Tag tag) {
  MutexLock lock(mutex_);
  fail_next_[index(tag)] = true;
}

}  // namespace tandem::budget
