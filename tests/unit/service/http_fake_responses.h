// A store of responses in memory for the tests of the HTTP layer.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "service/response_store.h"

namespace tandem::service {

class FakeResponses final : public ResponseStore {
 public:
  [[nodiscard]] int64_t response_bytes_max() const override {
    MutexLock lock(mutex_);
    return bytes_max_;
  }
  bool keep(StoredResponse response) override {
    MutexLock lock(mutex_);
    if (refuse_) return false;
    kept_.insert_or_assign({response.key_id, response.id}, std::move(response));
    return true;
  }
  [[nodiscard]] Result<StoredResponse> find(std::string id, std::string key_id) override {
    MutexLock lock(mutex_);
    if (behind_) return make_error(Errc::unavailable, "the store is behind");
    const auto at = kept_.find({key_id, id});
    if (at == kept_.end()) return make_error(Errc::not_found, "no such response");
    return at->second;
  }
  Result<void> remove(std::string id, std::string key_id) override {
    MutexLock lock(mutex_);
    if (kept_.erase({key_id, id}) == 1) return {};
    return make_error(Errc::not_found, "no such response");
  }

  void set_bytes_max(int64_t bytes) {
    MutexLock lock(mutex_);
    bytes_max_ = bytes;
  }
  void set_refuse(bool refuse) {
    MutexLock lock(mutex_);
    refuse_ = refuse;
  }
  void set_behind(bool behind) {
    MutexLock lock(mutex_);
    behind_ = behind;
  }
  [[nodiscard]] size_t count() const {
    MutexLock lock(mutex_);
    return kept_.size();
  }

 private:
  mutable Mutex mutex_;
  int64_t bytes_max_ TANDEM_GUARDED_BY(mutex_) = 1'000'000;
  bool refuse_ TANDEM_GUARDED_BY(mutex_) = false;
  bool behind_ TANDEM_GUARDED_BY(mutex_) = false;
  std::map<std::pair<std::string, std::string>, StoredResponse> kept_ TANDEM_GUARDED_BY(mutex_);
};

}  // namespace tandem::service
