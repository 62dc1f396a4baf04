// The black box (rule U23): a ring of fixed-size text lines in a file, one a second and one for each
// action, made durable by a thread of its own, so that the guard's loop never waits for a disk. After
// a wedge the file still reads with any pager; the highest number is the last line.
//
// note() is called by the guard's loop only; it neither waits nor allocates. Lines are lost when the
// disk stands still for longer than the buffer, and the number of lost ones is in the next line. A file
// that cannot be opened or is full from the beginning costs the lines, never the guard: it is tried again
// with each line.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/fd.h"
#include "base/result.h"

namespace tandem::budget {

class BlackBox {
 public:
  static constexpr size_t kLineBytes = 512;
  static constexpr size_t kLines = 7200;  // two hours
  static constexpr size_t kBuffered = 64;

  // `echo_fd` also gets the lines of actions; -1: none.
  static std::unique_ptr<BlackBox> open(std::string path, int echo_fd);
  ~BlackBox();
  BlackBox(const BlackBox&) = delete;
  BlackBox& operator=(const BlackBox&) = delete;

  // Cut to the line's length; without line ends.
  void note(std::string_view text, bool echo) noexcept;

 private:
  struct Line {
    std::array<char, kLineBytes> text;
    size_t size = 0;
    bool echo = false;
  };
  BlackBox(std::string path, int echo_fd);
  [[nodiscard]] Result<void> open_file();
  void write_lines();
  void write_line(const Line& line);

  const std::string path_;
  int echo_fd_;
  Fd file_;              // of the writer, after open()
  uint64_t number_ = 0;  // of the writer
  std::array<Line, kBuffered> lines_;
  std::atomic<uint64_t> noted_ = 0;    // by the loop
  std::atomic<uint64_t> written_ = 0;  // by the writer
  std::atomic<bool> stop_ = false;
  uint64_t lost_ = 0;
  std::jthread writer_;
};

}  // namespace tandem::budget
