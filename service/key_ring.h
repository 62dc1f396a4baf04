// KeyRing: the API keys, verified from memory. A key is "tdm_" + 8 hex digits + "_" + 40 hex digits
// (160 random bits); "tdm_" + the 8 digits is its public id. Kept is the SHA-256 of the whole text;
// the key itself is shown once, by add(). A session key lives in memory only, for a while: tandemctl
// chat gets one over the admin socket.
//
// Any thread. authenticate() takes a lock for the look-up only, and never touches the store.
// Errors of add are the store's, nothing has changed then; a revoked key is dead at once, even when the
// store could not write it down (the error then says so).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "service/auth.h"
#include "service/store/store.h"

namespace tandem::service {

struct NewKey {
  StoredKey stored;
  std::string key;  // the secret
};

class KeyRing final : public Authenticator {
 public:
  // require_key false: a request without any key header is let in for inference.
  KeyRing(Store& store, const Clock& clock, bool require_key);

  // Reads the keys of the store; once, before anything else.
  Result<void> load();

  Result<Identity> authenticate(std::optional<std::string_view> authorization,
                                std::optional<std::string_view> x_api_key) const override;

  // invalid_argument: an empty or overlong label, or no scope.
  Result<NewKey> add(std::string_view label, Scopes scopes);
  Result<void> revoke(std::string_view id);
  Result<std::vector<StoredKey>> list();
  // In memory only, inference scope.
  std::string add_session(std::chrono::seconds lifetime);

 private:
  struct Entry {
    std::string hash;
    Scopes scopes;
    std::optional<SteadyTime> expires;
  };

  Result<Identity> check(std::string_view key) const;

  Store& store_;
  const Clock& clock_;
  const bool require_key_;
  mutable Mutex mutex_;
  std::map<std::string, Entry, std::less<>> keys_ TANDEM_GUARDED_BY(mutex_);
};

}  // namespace tandem::service
