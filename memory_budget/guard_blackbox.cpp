#include "memory_budget/guard_blackbox.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

namespace tandem::budget {
namespace {

constexpr size_t kNumberDigits = 12;

// The number that a line begins with, or -1.
int64_t line_number(const char* line) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(line, line + kNumberDigits, number);
  return error == std::errc() && end == line + kNumberDigits ? number : -1;
}

// Where the last run ended; its lines are overwritten oldest first.
uint64_t next_number(int fd) {
  std::array<char, BlackBox::kLineBytes> line;
  int64_t last = -1;
  for (size_t i = 0; i < BlackBox::kLines; ++i) {
    const auto at = static_cast<off_t>(i * line.size());
    if (::pread(fd, line.data(), line.size(), at) != static_cast<ssize_t>(line.size())) break;
    last = std::max(last, line_number(line.data()));
  }
  return static_cast<uint64_t>(last + 1);
}

}  // namespace

std::unique_ptr<BlackBox> BlackBox::open(std::string path, int echo_fd) {
  return std::unique_ptr<BlackBox>(new BlackBox(std::move(path), echo_fd));
}

BlackBox::BlackBox(std::string path, int echo_fd) : path_(std::move(path)), echo_fd_(echo_fd) {
  if (const auto opened = open_file(); !opened.ok()) {
    std::fprintf(stderr, "guard: the black box waits: %s\n", opened.error().message.c_str());
  }
  writer_ = std::jthread([this] { write_lines(); });
}

Result<void> BlackBox::open_file() {
  Fd file(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640));
  if (!file.valid()) return errno_error(Errc::io, "cannot open " + path_, errno);
  // The whole ring now: a full disk must not take the black box away later.
  if (const int error = ::posix_fallocate(file.get(), 0, kLines * kLineBytes); error != 0) {
    return errno_error(Errc::io, "cannot allocate " + path_, error);
  }
  number_ = std::max(number_, next_number(file.get()));
  file_ = std::move(file);
  return {};
}

BlackBox::~BlackBox() {
  stop_.store(true, std::memory_order_release);
  noted_.fetch_add(kBuffered * 2, std::memory_order_release);  // wakes; no line of this number exists
  noted_.notify_one();
}

void BlackBox::note(std::string_view text, bool echo) noexcept {
  const uint64_t noted = noted_.load(std::memory_order_relaxed);
  if (noted - written_.load(std::memory_order_acquire) >= kBuffered) {
    ++lost_;
    return;
  }
  Line& line = lines_[noted % kBuffered];
  size_t used = 0;
  if (lost_ > 0) {
    const int n = std::snprintf(line.text.data(), line.text.size(), "(%llu lines lost) ",
                                static_cast<unsigned long long>(lost_));
    used = static_cast<size_t>(std::max(n, 0));
    lost_ = 0;
  }
  const size_t size = std::min(text.size(), line.text.size() - used);
  std::memcpy(line.text.data() + used, text.data(), size);
  line.size = used + size;
  line.echo = echo;
  noted_.store(noted + 1, std::memory_order_release);
  noted_.notify_one();
}

void BlackBox::write_line(const Line& line) {
  if (!file_.valid()) (void)open_file();
  std::array<char, kLineBytes> out;
  out.fill(' ');
  std::snprintf(out.data(), out.size(), "%0*llu ", static_cast<int>(kNumberDigits),
                static_cast<unsigned long long>(number_));
  const size_t head = kNumberDigits + 1;
  const size_t size = std::min(line.size, kLineBytes - head - 1);
  std::memcpy(out.data() + head, line.text.data(), size);
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(head + size), out.end() - 1, ' ');
  out.back() = '\n';
  const auto at = static_cast<off_t>(number_ % kLines * kLineBytes);
  ++number_;
  // A line that cannot be written is lost; the next one is tried again.
  if (file_.valid() && ::pwrite(file_.get(), out.data(), out.size(), at) == static_cast<ssize_t>(out.size())) {
    ::fdatasync(file_.get());
  }
  if (line.echo && echo_fd_ >= 0) {
    // A log that nobody reads must not stop the black box. What poll() promises a pipe takes whole.
    pollfd room{.fd = echo_fd_, .events = POLLOUT, .revents = 0};
    if (::poll(&room, 1, 0) <= 0 || (room.revents & POLLOUT) == 0) return;
    out[head + size] = '\n';
    [[maybe_unused]] const ssize_t n = ::write(echo_fd_, out.data() + head, size + 1);
  }
}

void BlackBox::write_lines() {
  uint64_t written = 0;
  while (true) {
    const uint64_t noted = noted_.load(std::memory_order_acquire);
    const bool stop = stop_.load(std::memory_order_acquire);
    const uint64_t end = stop && noted - written > kBuffered ? noted - kBuffered * 2 : noted;
    while (written < end) {
      write_line(lines_[written % kBuffered]);
      written_.store(++written, std::memory_order_release);
    }
    if (stop) return;
    noted_.wait(noted, std::memory_order_acquire);
  }
}

}  // namespace tandem::budget
