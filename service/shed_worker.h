// ShedWorker: the part of shedding that may wait, on a thread of its own: telling an engine how many
// slots and how large a chunk it has for now, and whether it keeps prefixes (frame `resize`), again after it was started anew, and
// giving the page cache of model files that no engine serves from back to the kernel, file by file.
//
// Any thread may tell and advise; neither waits.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/bounded_queue.h"
#include "service/generation.h"
#include "service/tenant.h"

namespace tandem::service {

class ShedWorker {
 public:
  // `tenants` by role, null where there is none; the folders of `model_files` are looked through.
  ShedWorker(std::array<Tenant*, 2> tenants, std::vector<std::string> model_files);
  ~ShedWorker();
  ShedWorker(const ShedWorker&) = delete;
  ShedWorker& operator=(const ShedWorker&) = delete;

  void tell(Role role, int64_t slots, int64_t chunk_tokens);
  void drop_prefixes(Role role, bool drop);
  void advise_clean_cache();

 private:
  struct Wish {
    int64_t slots = 0;  // 0: none yet
    int64_t chunk_tokens = 0;
    std::optional<bool> drop_prefixes;
    std::string told;   // instance of the engine that has it
  };
  struct Tell {
    Role role = Role::default_model;
    int64_t slots = 0;
    int64_t chunk_tokens = 0;
  };
  struct Drop {
    Role role = Role::default_model;
    bool drop = false;
  };
  struct Advise {};

  void run();
  void reconcile(Tenant& tenant, Wish& wish);
  void give_back() const;

  const std::array<Tenant*, 2> tenants_;
  const std::vector<std::string> model_files_;
  std::array<Wish, 2> wishes_;  // thread's own
  std::atomic<bool> stop_{false};
  BoundedQueue<std::variant<Tell, Drop, Advise>> queue_{64};
  std::jthread thread_;
};

// Files of models in the folders of `model_files` (and these themselves) that none of the processes
// maps: paths, in order. A process whose maps cannot be read may serve from any: then none.
std::vector<std::string> unserved_files(const std::vector<std::string>& model_files,
                                        const std::vector<int64_t>& pids);

}  // namespace tandem::service
