#include "service/shed_worker.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/fd.h"
#include "base/log.h"
#include "base/overloaded.h"

namespace tandem::service {
namespace {

constexpr auto kLookAgain = std::chrono::seconds(1);
constexpr auto kResizeLimit = std::chrono::seconds(2);
constexpr size_t kFilesMax = 256;

// Inodes that a process maps; the fifth field of a line. False: nothing is known.
bool mapped_inodes(int64_t pid, std::set<uint64_t>& out) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/maps");
  if (!file) return false;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string range;
    std::string rights;
    std::string offset;
    std::string device;
    uint64_t inode = 0;
    if (fields >> range >> rights >> offset >> device >> inode && inode != 0) out.insert(inode);
  }
  return true;
}

std::set<std::string> candidates(const std::vector<std::string>& model_files) {
  std::set<std::string> out(model_files.begin(), model_files.end());
  for (const std::string& model : model_files) {
    std::error_code code;
    const auto folder = std::filesystem::path(model).parent_path();
    for (auto it = std::filesystem::directory_iterator(folder, code);
         !code && it != std::filesystem::directory_iterator() && out.size() < kFilesMax; it.increment(code)) {
      if (it->path().extension() == ".gguf") out.insert(it->path().string());
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> unserved_files(const std::vector<std::string>& model_files,
                                        const std::vector<int64_t>& pids) {
  std::set<uint64_t> mapped;
  for (const int64_t pid : pids) {
    if (!mapped_inodes(pid, mapped)) return {};
  }
  std::vector<std::string> out;
  for (const std::string& path : candidates(model_files)) {
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && !mapped.contains(info.st_ino)) {
      out.push_back(path);
    }
  }
  return out;
}

ShedWorker::ShedWorker(std::array<Tenant*, 2> tenants, std::vector<std::string> model_files)
    : tenants_(tenants), model_files_(std::move(model_files)), thread_([this] { run(); }) {}

ShedWorker::~ShedWorker() {
  stop_ = true;
  queue_.close();
}

void ShedWorker::tell(Role role, int64_t slots, int64_t chunk_tokens) {
  if (!queue_.try_push(Tell{.role = role, .slots = slots, .chunk_tokens = chunk_tokens})) {
    log::warning("shedding: too much waits for the engines; they keep what they were told");
  }
}

void ShedWorker::drop_prefixes(Role role, bool drop) {
  if (!queue_.try_push(Drop{.role = role, .drop = drop})) {
    log::warning("shedding: too much waits for the engines; they keep what they were told");
  }
}

void ShedWorker::advise_clean_cache() {
  (void)queue_.try_push(Advise{});  // full: one is waiting already
}

void ShedWorker::run() {
  while (true) {
    const auto wants = [](const Wish& w) { return w.slots > 0 || w.drop_prefixes.has_value(); };
    const bool idle = std::none_of(wishes_.begin(), wishes_.end(), wants);
    // With a wish, engines that start later are told too.
    auto message = idle ? queue_.pop() : queue_.pop_until(std::chrono::steady_clock::now() + kLookAgain);
    if (stop_) return;
    if (message.has_value()) {
      std::visit(Overloaded{[&](const Tell& tell) {
                              Wish& wish = wishes_[static_cast<size_t>(tell.role)];
                              wish.slots = tell.slots;
                              wish.chunk_tokens = tell.chunk_tokens;
                              wish.told.clear();
                            },
                            [&](const Drop& drop) {
                              Wish& wish = wishes_[static_cast<size_t>(drop.role)];
                              wish.drop_prefixes = drop.drop;
                              wish.told.clear();
                            },
                            [&](const Advise&) { give_back(); }},
                 *message);
    }
    if (queue_.size() > 0) continue;  // a newer word may be there
    for (size_t i = 0; i < tenants_.size(); ++i) {
      if (tenants_[i] != nullptr && wants(wishes_[i])) reconcile(*tenants_[i], wishes_[i]);
    }
  }
}

void ShedWorker::reconcile(Tenant& tenant, Wish& wish) {
  const ModelStatus status = tenant.status();
  if (status.state != ModelState::ready || status.instance_id.empty() || status.instance_id == wish.told) return;
  protocol::Resize wanted;
  if (wish.slots > 0) {
    wanted.slots = wish.slots;
    wanted.shed_chunk_tokens = wish.chunk_tokens;
  }
  wanted.drop_prefix_cache = wish.drop_prefixes;
  const auto done = tenant.client().resize(wanted, std::chrono::steady_clock::now() + kResizeLimit);
  if (!done.ok() && (done.error().code == Errc::unavailable || done.error().code == Errc::cancelled)) return;
  wish.told = status.instance_id;
  const std::string what =
      "model " + tenant.info().name + ": slots " +
      (wish.slots > 0 ? std::to_string(wish.slots) : "as configured") + ", chunk " +
      (wish.chunk_tokens > 0 ? std::to_string(wish.chunk_tokens) : "as configured") +
      (wish.drop_prefixes.value_or(false) ? ", no prefix cache" : "");
  // New work is bounded by the admission all the same.
  done.ok() ? log::info(what) : log::warning(what + ": the engine does not take it: " + done.error().message);
}

void ShedWorker::give_back() const {
  std::vector<int64_t> pids;
  for (const Tenant* tenant : tenants_) {
    if (tenant != nullptr && tenant->status().pid > 0) pids.push_back(tenant->status().pid);
  }
  const std::vector<std::string> files = unserved_files(model_files_, pids);
  int64_t bytes = 0;
  for (const std::string& path : files) {
    const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info {};
    if (!file.valid() || ::fstat(file.get(), &info) != 0) continue;
    if (::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED) == 0) bytes += info.st_size;
  }
  log::info("shedding: the cache of " + std::to_string(files.size()) + " model files that nobody serves from (" +
            std::to_string(bytes >> 20) + " MiB on disk) is given back");
}

}  // namespace tandem::service
