#include "memory_budget/reclaim.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"

namespace tandem::budget {
namespace {

constexpr std::string_view kDone = "done\n";
constexpr std::string_view kFailed = "failed: ";

Result<void> write_text(const std::string& path, const std::string& text) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return errno_error(Errc::io, "cannot open " + path, errno);
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return errno_error(Errc::io, "cannot write " + path, errno);
  }
  return {};
}

}  // namespace

Result<void> reclaim_once(const std::string& root) {
  // Dirty pages cannot be dropped.
  ::sync();
  TRY(write_text(root + "/proc/sys/vm/drop_caches", "3"));
  return write_text(root + "/proc/sys/vm/compact_memory", "1");
}

std::string reclaim_answer(const Result<void>& done) {
  if (done.ok()) return std::string(kDone);
  std::string line(kFailed);
  line += std::string_view(done.error().message).substr(0, kReclaimAnswerMax - kFailed.size() - 1);
  return line + '\n';
}

Result<void> read_reclaim_answer(std::string_view text) {
  if (text == kDone) return {};
  if (!text.ends_with('\n') || !text.starts_with(kFailed)) return make_error(Errc::corrupt, "no answer from the helper");
  text.remove_suffix(1);
  return make_error(Errc::io, std::string(text.substr(kFailed.size())));
}

}  // namespace tandem::budget
