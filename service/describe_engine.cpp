#include "service/describe_engine.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "service/process.h"
#include "service/spawn.h"

namespace tandem::service {
namespace {

constexpr size_t kAnswerBytesMax = size_t{4} << 20;
constexpr JsonLimits kAnswerLimits{.bytes_max = kAnswerBytesMax, .depth_max = 8, .values_max = 100'000};

using Time = std::chrono::steady_clock;

// Up to the end of the stream. Error: too_large, unavailable when the time is over.
Result<std::string> read_answer(int fd, Time::time_point deadline) {
  std::string answer;
  std::array<char, 16384> buffer{};
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Time::now()).count();
    pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = left <= 0 ? 0 : ::poll(&wait, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      return make_error(Errc::unavailable, "tandem-engine did not describe the file in time");
    }
    const ssize_t count = ::read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error(Errc::io, "cannot read what tandem-engine says", errno);
    if (count == 0) return answer;
    answer.append(buffer.data(), static_cast<size_t>(count));
    if (answer.size() > kAnswerBytesMax) {
      return make_error(Errc::too_large, "tandem-engine's description is longer than " +
                                             std::to_string(kAnswerBytesMax) + " bytes");
    }
  }
}

// The code of an error that the engine printed, so that tandemctl's own exit code follows from it.
Errc code_named(const std::string& name) {
  for (const Errc code : kAllErrcs) {
    if (name == errc_name(code)) return code;
  }
  return Errc::corrupt;
}

Result<Json> read_description(const std::string& answer, const std::string& file,
                              const std::string& how_it_ended) {
  auto json = parse_json(answer, kAnswerLimits);
  if (!json.ok() || !json->is_object()) {
    return make_error(Errc::corrupt, "tandem-engine gave no description of " + file + " (" +
                                         how_it_ended + ")");
  }
  const Json* error = json->find("error");
  if (error == nullptr) return json;
  const Json* message = error->find("message");
  const Json* code = error->find("code");
  std::string text =
      message != nullptr && message->is_string() ? message->as_string() : "no reason was given";
  if (text.find(file) == std::string::npos) text.insert(0, file + ": ");
  return make_error(
      code != nullptr && code->is_string() ? code_named(code->as_string()) : Errc::corrupt,
      std::move(text));
}

}  // namespace

Result<Json> ask_engine(const DescribeQuestion& question) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error(Errc::io, "pipe2", errno);
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  TRY_ASSIGN(const pid_t pid, spawn({question.engine, "--describe", question.file, "--slots",
                                     std::to_string(question.slots), "--context",
                                     std::to_string(question.context_tokens), "--batch-tokens",
                                     std::to_string(question.batch_tokens), "--threads",
                                     std::to_string(question.threads)},
                                    {.output = "", .output_fd = writer.get()}));
  auto process = Process::of_child(pid);  // it may be done before we look
  writer = Fd();  // or the end of the stream would never come
  auto answer = read_answer(reader.get(), Time::now() + question.answer_limit);
  std::string how_it_ended = "ended";
  if (process.ok()) {
    if (!answer.ok()) (void)process->signal(SIGKILL);
    if (!process->wait(std::chrono::seconds(5))) (void)process->signal(SIGKILL);
    how_it_ended = process->reap();
  }
  if (!answer.ok()) return std::move(answer).error();
  return read_description(*answer, question.file, how_it_ended);
}

}  // namespace tandem::service
