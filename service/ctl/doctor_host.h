// HostFiles: what tandemctl doctor sees of a host, all of it files below a root directory, so that tests
// show it simulated hosts; and the processes it cares about, read once. Reading never fails: a file that
// is missing, unreadable or too large is no text. Files are bounded at 1 MiB. One owner.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memory_budget/probe.h"

namespace tandem::service::ctl {

struct HostProcess {
  int64_t pid = 0;
  std::string name;  // of the kernel, at most 15 bytes
};

class HostFiles {
 public:
  // `root`: empty for this host.
  explicit HostFiles(std::string root);

  // `path` begins with a slash. Empty optional: no such file, or no text.
  [[nodiscard]] std::optional<std::string> read(std::string_view path) const;
  // The same without white space at its end; empty text when there is none.
  [[nodiscard]] std::string word(std::string_view path) const;
  [[nodiscard]] std::optional<int64_t> number(std::string_view path) const;
  [[nodiscard]] bool exists(std::string_view path) const;
  // Where a symbolic link points, as it stands there.
  [[nodiscard]] std::string link(std::string_view path) const;
  // Names in a directory, sorted; empty when there is none.
  [[nodiscard]] std::vector<std::string> names(std::string_view path) const;
  // A soft or hard limit of /proc/PID/limits, -1 for "unlimited"; empty: unknown.
  struct Limit {
    int64_t soft = 0;
    int64_t hard = 0;
  };
  [[nodiscard]] std::optional<Limit> limit(const std::string& process, std::string_view name) const;

  // The first process of this name; empty: none runs, or none is visible.
  [[nodiscard]] std::optional<HostProcess> process(std::string_view name) const;
  [[nodiscard]] std::vector<HostProcess> processes(std::string_view name) const;
  [[nodiscard]] const budget::Meminfo& memory() const { return memory_; }
  // An integrated or discrete NVIDIA part with its driver loaded, or a Jetson.
  [[nodiscard]] bool nvidia() const { return nvidia_; }
  [[nodiscard]] const std::string& root() const { return root_; }

 private:
  const std::string root_;
  std::vector<HostProcess> processes_;
  budget::Meminfo memory_;
  bool nvidia_ = false;
};

// "key value" or "key=value" lines: the value of the last that is not commented out; empty: none.
std::string keyed_value(std::string_view text, std::string_view key, char separator);
std::vector<std::string_view> lines_of(std::string_view text);
std::vector<std::string_view> words_of(std::string_view text);
std::optional<int64_t> parse_whole(std::string_view text);

}  // namespace tandem::service::ctl
