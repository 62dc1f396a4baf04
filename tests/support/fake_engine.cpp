// fake_engine: speaks the engine protocol without a model, for tests of the service. It takes the
// same flags as tandem-engine; how it behaves is a script in the --model file: one "key value" a
// line after a first line "fake-engine". A file that does not start so gives the defaults.
//
//   answer TEXT            the answer, split into words, one token each (default: word0 word1 ...)
//   echo 1                 the answer is the prompt (the text of the last message)
//   tokens N               length of the default answer (16)
//   tokens_per_second X    pace of each request; 0: at once (default)
//   load_ms N              time in state loading (0)
//   load_fail TEXT         after load_ms: state failed with this message, exit code 1
//   crash_after_events N   SIGKILL itself after that many events (over all requests)
//   hang_after_events N    from then on it neither reads nor writes
//   hang_on_hello 1        never answers hello
//   hang_on_render 1       never answers render
//   template_error 1       render refuses every chat
//   leading_system_only 1  render refuses a system message that is not the first
//   ignore_sigterm 1       SIGTERM does nothing
//   refuse_submit CODE     every submit fails with this Errc name
//   protocol_version N     told in welcome (the latest)
//   engine_version N       the only protocol version it speaks: a client without it gets failed and a
//                          close, as from the real engine (off)
//   weights_hash TEXT      told in welcome
//   finish REASON          stop (default) or length
//   decode_us N            told with each finish, as the time from the first token to the last (0)
//   second_events 1        behind each token another content event, without a token
//   stamps 1               each token's text is "@N;", N the steady clock in ns when it was made
//
// With --spec FILE instead it stands in for tandem-relay.
//
// Tokens of a prompt: one per byte. Slots, --queue, --context, credit, cancel, stop strings,
// max_tokens and log-probabilities work as in the real engine.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>

#include "base/relay_spec.h"
#include "tests/support/fake_engine.h"

namespace tandem::tests {

using protocol::EngineState;

bool FakeEngine::listen_on_socket() {
  if (options_.listen_fd >= 0) {
    listener_ = Fd(options_.listen_fd);
    return true;
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (options_.socket.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, options_.socket.data(), options_.socket.size());
  ::unlink(options_.socket.c_str());
  listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const mode_t before = ::umask(0177);
  const int bound =
      ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  ::umask(before);
  return bound == 0 && ::listen(listener_.get(), 16) == 0;
}

void FakeEngine::set_state(EngineState state, std::string message) {
  state_ = state;
  protocol::StateChange change{.state = state, .message = std::move(message), .facts = {}};
  if (state == EngineState::ready) change.facts = facts();
  for (auto& connection : connections_) {
    if (connection->greeted) connection->send(FrameType::state, 0, change.to_json());
  }
}

int64_t FakeEngine::count(bool running) const {
  int64_t sum = 0;
  for (const auto& connection : connections_) {
    for (const auto& [id, request] : connection->requests) sum += request.running == running ? 1 : 0;
  }
  return sum;
}

void FakeEngine::accept_one() {
  const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0) connections_.push_back(std::make_unique<Connection>(fd));
}

void FakeEngine::read_from(Connection& connection) {
  char buffer[65536];
  const ssize_t got = ::read(connection.fd.get(), buffer, sizeof buffer);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) connection.lost = true;
  if (got <= 0) return;
  connection.decoder.feed(std::string_view(buffer, static_cast<size_t>(got)));
  while (!connection.lost) {
    auto frame = connection.decoder.next();
    if (!frame.ok()) connection.lost = true;
    if (!frame.ok() || !frame->has_value()) return;
    handle(connection, **frame);
  }
}

void FakeEngine::write_to(Connection& connection) {
  const ssize_t sent = ::send(connection.fd.get(), connection.out.data(), connection.out.size(),
                              MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) connection.lost = true;
  if (sent > 0) connection.out.erase(0, static_cast<size_t>(sent));
}

void FakeEngine::send_event(Connection& connection, uint64_t id, protocol::Event event) {
  connection.send(FrameType::event, id, event.to_json());
  ++events_;
  if (events_ == script_.number("crash_after_events", -1)) {
    write_to(connection);
    ::kill(::getpid(), SIGKILL);
  }
  if (events_ == script_.number("hang_after_events", -1)) hanging_ = true;
}

void FakeEngine::finish(Connection& connection, uint64_t id, const Request& request,
                        protocol::FinishReason reason) {
  protocol::FinishEvent event;
  event.reason = reason;
  const bool stopped = reason == protocol::FinishReason::stop;
  if (stopped) event.stop_sequence = request.stop_sequence;
  event.usage.prompt_tokens = request.prompt_tokens;
  event.usage.completion_tokens = static_cast<int64_t>(request.next_word);
  event.timing.decode_us = script_.number("decode_us", 0);
  reason == protocol::FinishReason::cancelled ? ++cancelled_ : ++finished_;
  send_event(connection, id, protocol::Event{std::move(event)});
}

protocol::ScoredToken FakeEngine::score(int32_t token, const std::string& bytes,
                                        int64_t top) const {
  protocol::ScoredToken scored{.chosen = {token, bytes, -0.5}, .top = {}};
  for (int64_t i = 0; i < top; ++i) {
    scored.top.push_back({.token = i == 0 ? token : static_cast<int32_t>(i),
                          .bytes = i == 0 ? bytes : "alt" + std::to_string(i),
                          .logprob = -0.5 - static_cast<double>(i)});
  }
  return scored;
}

// One token of a running request; true when it has ended.
bool FakeEngine::step_request(Connection& connection, uint64_t id, Request& request) {
  if (request.submit.prompt_logprobs && !request.prompt_sent) {
    request.prompt_sent = true;
    protocol::PromptEvent event;
    for (int64_t i = 0; i < request.prompt_tokens; ++i) {
      event.tokens.push_back(score(1, "x", std::max<int64_t>(request.submit.top_logprobs, 0)));
    }
    if (!event.tokens.empty()) {
      event.tokens[0].chosen.logprob = std::numeric_limits<double>::quiet_NaN();
    }
    send_event(connection, id, protocol::Event{std::move(event)});
  }
  const auto made = static_cast<int64_t>(request.next_word);
  const int64_t room = options_.context_tokens - request.prompt_tokens;
  if (made >= std::min(request.submit.max_tokens, room)) {
    finish(connection, id, request, protocol::FinishReason::length);
    return true;
  }
  if (request.next_word == request.words.size()) {
    finish(connection, id, request,
           script_.text("finish", "stop") == "length" ? protocol::FinishReason::length
                                                      : protocol::FinishReason::stop);
    return true;
  }
  if (request.submit.credit <= 0) return false;
  --request.submit.credit;
  std::string word = request.words[request.next_word];
  if (script_.flag("stamps")) word = "@" + std::to_string(clock_.now().time_since_epoch().count()) + ";";
  protocol::ContentEvent event;
  event.text = word;
  event.token = 256 + static_cast<int32_t>(request.next_word % 1000);
  if (request.submit.top_logprobs >= 0) {
    event.score = score(event.token, word, request.submit.top_logprobs);
  }
  ++request.next_word;
  ++completion_tokens_;
  send_event(connection, id, protocol::Event{std::move(event)});
  if (script_.number("second_events", 0) > 0) {
    protocol::ContentEvent second;
    second.text = ".";
    second.token = protocol::kNoToken;
    send_event(connection, id, protocol::Event{std::move(second)});
  }
  return false;
}

void FakeEngine::step() {
  const SteadyTime now = clock_.now();
  const double rate = static_cast<double>(script_.number("tokens_per_second", 0));
  const auto pace = std::chrono::duration_cast<SteadyTime::duration>(
      std::chrono::duration<double>(rate > 0 ? 1.0 / rate : 0.0));
  for (auto& connection : connections_) {
    std::vector<uint64_t> ended;
    for (auto& [id, request] : connection->requests) {
      if (!request.running && count(true) < options_.slots) {
        request.running = true;
        request.next_time = now;
      }
      if (!request.running || request.next_time > now) continue;
      request.next_time = std::max(request.next_time + pace, now);
      if (step_request(*connection, id, request)) ended.push_back(id);
      if (hanging_) return;
    }
    for (const uint64_t id : ended) connection->requests.erase(id);
  }
  if (count(true) + count(false) != 0) return;
  for (auto& connection : connections_) {
    for (const uint64_t id : connection->drains) {
      connection->send(FrameType::drained, id, Json::object());
    }
    connection->drains.clear();
  }
}

void FakeEngine::finish_loading() {
  const std::string failure = script_.text("load_fail", "");
  set_state(failure.empty() ? EngineState::ready : EngineState::failed, failure);
}

// Short while something runs: the pace is kept to a millisecond or so.
int FakeEngine::poll_timeout_ms() const {
  if (state_ == EngineState::loading) return 5;
  const bool paced = script_.number("tokens_per_second", 0) > 0;
  for (const auto& connection : connections_) {
    for (const auto& [id, request] : connection->requests) {
      if (request.submit.credit > 0 || !request.running) return paced ? 1 : 0;
    }
  }
  return 1000;
}

int FakeEngine::run() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = Fd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != sizeof random || !listen_on_socket()) return 1;
  instance_id_ = "fake-" + std::to_string(random);
  loaded_at_ = clock_.now() + std::chrono::milliseconds(script_.number("load_ms", 0));
  while (true) {
    if (state_ == EngineState::loading && clock_.now() >= loaded_at_) finish_loading();
    std::vector<pollfd> polls{{listener_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
    for (auto& connection : connections_) {
      const int out = connection->out.empty() ? 0 : POLLOUT;
      polls.push_back({connection->fd.get(), static_cast<short>(POLLIN | out), 0});
    }
    if (hanging_) {
      ::poll(&polls[1], 1, -1);  // only a signal gets through
      if (!script_.flag("ignore_sigterm")) return 0;
    }
    ::poll(polls.data(), polls.size(), poll_timeout_ms());
    for (size_t i = 2; i < polls.size(); ++i) {
      if ((polls[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(*connections_[i - 2]);
    }
    if ((polls[0].revents & POLLIN) != 0) accept_one();
    signalfd_siginfo info{};
    if (::read(signals_.get(), &info, sizeof info) > 0 && !script_.flag("ignore_sigterm")) {
      exit_when_idle_ = true;
      set_state(EngineState::draining, "SIGTERM");
    }
    step();
    for (auto& connection : connections_) {
      if (!connection->out.empty()) write_to(*connection);
    }
    std::erase_if(connections_, [](const auto& connection) { return connection->lost; });
    if (state_ == EngineState::failed) return 1;
    if (exit_when_idle_ && count(true) + count(false) == 0) return 0;
  }
}

}  // namespace tandem::tests

namespace {

// In the place of tandem-relay: the flags of an engine from its file (base/relay_spec.h). The script is the
// model file of the command, or else what the variable FAKE_SCRIPT names.
std::vector<std::string> without_spec(std::vector<std::string> arguments) {
  const auto flag = std::find(arguments.begin(), arguments.end(), "--spec");
  if (flag == arguments.end() || flag + 1 == arguments.end()) return arguments;
  std::ifstream file(*(flag + 1));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto json = tandem::parse_json(text);
  const auto spec = json.ok() ? tandem::RelaySpec::from_json(*json) : tandem::Result<tandem::RelaySpec>(json.error());
  if (!spec.ok()) {
    std::fprintf(stderr, "%s\n", spec.error().message.c_str());
    return {};
  }
  arguments.erase(flag, flag + 2);
  const auto model = std::find(spec->command.begin(), spec->command.end(), "--model");
  const auto script = spec->environment.find("FAKE_SCRIPT");
  if (script != spec->environment.end()) {
    arguments.insert(arguments.end(), {"--model", script->second});
  } else if (model != spec->command.end() && model + 1 != spec->command.end()) {
    arguments.insert(arguments.end(), {"--model", *(model + 1)});
  }
  arguments.insert(arguments.end(), {"--slots", std::to_string(spec->slots), "--context",
                                     std::to_string(spec->context_tokens)});
  if (spec->kv_bytes > 0) arguments.insert(arguments.end(), {"--kv", std::to_string(spec->kv_bytes)});
  return arguments;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words = without_spec({argv + 1, argv + argc});
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  auto options = tandem::engine::parse_engine_options(arguments);
  if (!options.ok()) {
    std::fprintf(stderr, "%s\n", options.error().message.c_str());
    return 2;
  }
  if (!options->describe.empty()) {
    std::fprintf(stderr, "a script says nothing of its memory\n");
    return 1;
  }
  const std::string socket = options->socket;
  auto script = tandem::tests::FakeScript::read(options->model);
  tandem::tests::FakeEngine engine(std::move(*options), std::move(script));
  const int code = engine.run();
  if (!socket.empty()) ::unlink(socket.c_str());
  return code;
}
