#include "service/key_ring.h"

#include "base/utf8.h"
#include "service/sha256.h"

namespace tandem::service {
namespace {

constexpr size_t kIdBytes = 12;       // "tdm_" and 8 digits
constexpr size_t kSecretBytes = 20;   // 160 bits
constexpr size_t kKeyBytesMax = 256;  // longer ones are not even hashed
constexpr size_t kLabelBytesMax = 100;

struct Fresh {
  std::string id;
  std::string key;
};

Fresh make_key() {
  Fresh fresh;
  fresh.id = "tdm_" + random_hex(4);
  fresh.key = fresh.id + "_" + random_hex(kSecretBytes);
  return fresh;
}

Error unauthorized(const char* message) { return make_error(Errc::unauthorized, message); }

// The token of "Bearer TOKEN"; the scheme in any case, as RFC 9110 says.
std::optional<std::string_view> bearer_token(std::string_view header) {
  constexpr std::string_view kScheme = "bearer ";
  if (header.size() <= kScheme.size()) return std::nullopt;
  for (size_t i = 0; i < kScheme.size(); ++i) {
    const char c = header[i] >= 'A' && header[i] <= 'Z' ? static_cast<char>(header[i] + 32)
                                                        : header[i];
    if (c != kScheme[i]) return std::nullopt;
  }
  header.remove_prefix(kScheme.size());
  while (!header.empty() && header.front() == ' ') header.remove_prefix(1);
  while (!header.empty() && header.back() == ' ') header.remove_suffix(1);
  return header;
}

}  // namespace

KeyRing::KeyRing(Store& store, const Clock& clock, bool require_key)
    : store_(store), clock_(clock), require_key_(require_key) {}

Result<void> KeyRing::load() {
  TRY_ASSIGN(const std::vector<StoredKey> stored, store_.keys());
  MutexLock lock(mutex_);
  for (const StoredKey& key : stored) {
    if (key.revoked_unix_s == 0) keys_[key.id] = {.hash = key.hash, .scopes = key.scopes, .expires = {}};
  }
  return {};
}

Result<Identity> KeyRing::authenticate(std::optional<std::string_view> authorization,
                                       std::optional<std::string_view> x_api_key) const {
  if (!authorization.has_value() && !x_api_key.has_value()) {
    if (!require_key_) return Identity{.key_id = "", .scopes = {.inference = true, .admin = false}};
    return unauthorized("no API key: send it as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"");
  }
  std::optional<std::string_view> token;
  if (authorization.has_value()) {
    token = bearer_token(*authorization);
    if (!token.has_value()) return unauthorized("the Authorization header is not \"Bearer KEY\"");
    if (x_api_key.has_value() && *x_api_key != *token) {
      return unauthorized("the Authorization and x-api-key headers differ");
    }
  }
  return check(token.value_or(x_api_key.value_or("")));
}

Result<Identity> KeyRing::check(std::string_view key) const {
  // One message for unknown, revoked and wrong: it tells nobody which keys exist.
  const auto invalid = [] { return unauthorized("the API key is not valid"); };
  if (key.size() <= kIdBytes || key.size() > kKeyBytesMax) return invalid();
  const std::string id(key.substr(0, kIdBytes));
  const std::string hash = sha256_hex(key);
  Entry entry;
  {
    MutexLock lock(mutex_);
    const auto at = keys_.find(id);
    if (at == keys_.end()) return invalid();
    entry = at->second;
  }
  if (!equal_constant_time(hash, entry.hash)) return invalid();
  if (entry.expires.has_value() && clock_.now() >= *entry.expires) return invalid();
  return Identity{.key_id = id, .scopes = entry.scopes};
}

Result<NewKey> KeyRing::add(std::string_view label, Scopes scopes) {
  if (label.empty() || label.size() > kLabelBytesMax || !utf8::is_valid(label)) {
    return make_error(Errc::invalid_argument,
                      "the name of a key has 1 to " + std::to_string(kLabelBytesMax) + " bytes",
                      "name");
  }
  if (!scopes.inference && !scopes.admin) {
    return make_error(Errc::invalid_argument, "a key needs a scope", "scope");
  }
  Fresh fresh = make_key();
  NewKey made{.stored = {.id = fresh.id,
                         .hash = sha256_hex(fresh.key),
                         .label = std::string(label),
                         .scopes = scopes,
                         .created_unix_s = clock_.unix_seconds(),
                         .revoked_unix_s = 0,
                         .last_used_unix_s = 0},
              .key = fresh.key};
  TRY(store_.add_key(made.stored));  // the primary key refuses an id that exists
  MutexLock lock(mutex_);
  keys_[fresh.id] = {.hash = made.stored.hash, .scopes = scopes, .expires = {}};
  return made;
}

Result<void> KeyRing::revoke(std::string_view id) {
  // Memory first: whatever the store says, the key is dead from here on.
  bool known = false;
  {
    MutexLock lock(mutex_);
    const auto at = keys_.find(id);
    known = at != keys_.end();
    if (known) keys_.erase(at);
  }
  const auto stored = store_.revoke_key(std::string(id), clock_.unix_seconds());
  if (stored.ok()) return {};
  if (stored.error().code != Errc::not_found) return stored.error();
  if (known) return {};  // a session key
  return make_error(Errc::not_found, "no valid key has this id; tandemctl key list shows them", "id");
}

Result<std::vector<StoredKey>> KeyRing::list() { return store_.keys(); }

std::string KeyRing::add_session(std::chrono::seconds lifetime) {
  Fresh fresh = make_key();
  const SteadyTime now = clock_.now();
  MutexLock lock(mutex_);
  std::erase_if(keys_, [&](const auto& entry) {
    return entry.second.expires.has_value() && *entry.second.expires <= now;
  });
  keys_.insert_or_assign(fresh.id, Entry{.hash = sha256_hex(fresh.key),
                                         .scopes = {.inference = true, .admin = false},
                                         .expires = now + lifetime});
  return fresh.key;
}

}  // namespace tandem::service
