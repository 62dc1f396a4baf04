#include "service/ctl/doctor_host.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "base/fd.h"

namespace tandem::service::ctl {
namespace {

constexpr size_t kFileBytesMax = size_t{1} << 20;
constexpr size_t kProcessesMax = 65536;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

}  // namespace

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    out.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> out;
  while (true) {
    text = trimmed(text);
    if (text.empty()) return out;
    const size_t end = std::min(text.find_first_of(" \t\n"), text.size());
    out.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

std::optional<int64_t> parse_whole(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string keyed_value(std::string_view text, std::string_view key, char separator) {
  std::string out;
  for (const std::string_view raw : lines_of(text)) {
    const std::string_view line = trimmed(raw);
    const size_t at = line.find(separator);
    if (at == std::string_view::npos || trimmed(line.substr(0, at)) != key) continue;
    out = trimmed(line.substr(at + 1));
  }
  return out;
}

HostFiles::HostFiles(std::string root) : root_(std::move(root)) {
  for (const std::string& name : names("/proc")) {
    const auto pid = parse_whole(name);
    if (!pid.has_value() || *pid <= 0 || processes_.size() == kProcessesMax) continue;
    std::string comm = word("/proc/" + name + "/comm");
    if (!comm.empty()) processes_.push_back({*pid, std::move(comm)});
  }
  if (const auto text = read("/proc/meminfo")) budget::parse_meminfo(*text, memory_);
  nvidia_ = exists("/proc/driver/nvidia/version") || exists("/etc/nv_tegra_release") ||
            word("/proc/device-tree/model").find("NVIDIA") != std::string::npos;
}

std::optional<std::string> HostFiles::read(std::string_view path) const {
  const Fd fd(::open((root_ + std::string(path)).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return std::nullopt;
  std::string out;
  char buffer[16384];
  while (true) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count == 0) return out;
    if (count < 0 || out.size() + static_cast<size_t>(count) > kFileBytesMax) return std::nullopt;
    out.append(buffer, static_cast<size_t>(count));
  }
}

std::string HostFiles::word(std::string_view path) const {
  return std::string(trimmed(read(path).value_or("")));
}

std::optional<int64_t> HostFiles::number(std::string_view path) const {
  return parse_whole(word(path));
}

bool HostFiles::exists(std::string_view path) const {
  return ::access((root_ + std::string(path)).c_str(), F_OK) == 0;
}

std::string HostFiles::link(std::string_view path) const {
  std::error_code error;
  const auto target = std::filesystem::read_symlink(root_ + std::string(path), error);
  return error ? std::string() : target.string();
}

std::vector<std::string> HostFiles::names(std::string_view path) const {
  std::vector<std::string> out;
  std::error_code error;
  for (std::filesystem::directory_iterator at(root_ + std::string(path), error), end;
       !error && at != end; at.increment(error)) {
    out.push_back(at->path().filename().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::optional<HostFiles::Limit> HostFiles::limit(const std::string& process,
                                                 std::string_view name) const {
  const std::string text = read("/proc/" + process + "/limits").value_or("");
  for (const std::string_view line : lines_of(text)) {
    if (!line.starts_with(name)) continue;
    const auto words = words_of(line.substr(name.size()));
    if (words.size() < 2) return std::nullopt;
    const auto value = [](std::string_view word) -> std::optional<int64_t> {
      return word == "unlimited" ? -1 : parse_whole(word);
    };
    const auto soft = value(words[0]);
    const auto hard = value(words[1]);
    if (!soft.has_value() || !hard.has_value()) return std::nullopt;
    return Limit{*soft, *hard};
  }
  return std::nullopt;
}

std::vector<HostProcess> HostFiles::processes(std::string_view name) const {
  std::vector<HostProcess> out;
  for (const HostProcess& process : processes_) {
    if (process.name == name.substr(0, 15)) out.push_back(process);
  }
  return out;
}

std::optional<HostProcess> HostFiles::process(std::string_view name) const {
  const auto found = processes(name);
  return found.empty() ? std::nullopt : std::optional(found.front());
}

}  // namespace tandem::service::ctl
