// What is kept of a response whose client said `store: true`: the response object and the items of
// its whole conversation, both as JSON text. This is the only text of prompts and answers that
// Tandem ever stores; it belongs to the key that made it, for a limited time. The HTTP layer sees
// this interface; the store implements it (service/store/store.h), tests bring their own.
//
// Any thread. Errors of find and remove: not_found (no such response, another key's, or too old:
// nobody learns which), else the store's.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace tandem::service {

struct StoredResponse {
  std::string id;      // "resp_..."
  std::string key_id;  // public part of the key; empty without one
  int64_t created_unix_s = 0;
  std::string body;   // the response object
  std::string items;  // array: input and output items, those of earlier responses included

  // What it counts against the limits; the constant is a row's own share of the database.
  [[nodiscard]] int64_t bytes() const {
    constexpr size_t kRowBytes = 512;
    return static_cast<int64_t>(id.size() + key_id.size() + body.size() + items.size() + kRowBytes);
  }
};

struct ResponseLimits {
  int64_t bytes_max = int64_t{256} << 20;         // of all keys; the oldest go first
  int64_t bytes_per_key_max = int64_t{64} << 20;  // of one key; 0: nothing is stored
  int64_t lifetime_s = int64_t{30} * 24 * 3600;
};

class ResponseStore {
 public:
  virtual ~ResponseStore() = default;

  // The largest response that is kept; 0: none is.
  [[nodiscard]] virtual int64_t response_bytes_max() const = 0;
  // False: what is handed to keep() now could not be stored.
  [[nodiscard]] virtual bool can_keep() const { return true; }
  // Never blocks. True: whoever calls find() from now on gets it, as long as the limits leave it
  // and this process lives. False: too large, or the store is behind.
  virtual bool keep(StoredResponse response) = 0;
  [[nodiscard]] virtual Result<StoredResponse> find(std::string id, std::string key_id) = 0;
  virtual Result<void> remove(std::string id, std::string key_id) = 0;
};

}  // namespace tandem::service
