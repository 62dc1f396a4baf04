// Times of one completion through tandemd and of the same frames on the engine's own socket, in turn; started
// by tests/bench/gateway_cost, which prints the bounds. Modes:
//   pairs SOCKET PORT KEY PROMPT_BYTES REPEATS       "through_us direct_us" medians
//   load PORT KEY PROMPT_BYTES CLIENTS REPEATS       "requests seconds p50_us", all clients at once
//   streams PORT KEY STREAMS STALLED FROM_S TO_S TOKENS
//                                                    "gaps p50_us p99_us" of the healthy streams in that span
//   relay SOCKET|PORT KEY STREAMS SECONDS TOKENS     "frames p50_us p99_us" from the engine's stamp (fake_engine)
//                                                    to us; a socket is asked directly
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/engine_client.h"

namespace tandem::tests {
namespace {

using Clock = std::chrono::steady_clock;

int64_t us_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
}

int64_t quantile(std::vector<int64_t> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

void print_quantiles(const std::vector<int64_t>& values) {
  std::printf("%zu %lld %lld\n", values.size(), static_cast<long long>(quantile(values, 0.5)),
              static_cast<long long>(quantile(values, 0.99)));
}

Fd connect_tcp(int port, bool small_buffer = false) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int one = 1;
  (void)::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (small_buffer) (void)::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &one, sizeof one);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
  return fd;
}

bool send_all(const Fd& fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

std::string request_bytes(const std::string& key, const std::string& prompt, int64_t tokens, bool stream) {
  Json body = Json::object();
  body.set("model", "bench").set("prompt", prompt).set("max_tokens", tokens).set("temperature", 0);
  body.set("ignore_eos", true).set("stream", stream);
  const std::string text = body.dump();
  return "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + key +
         "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(text.size()) + "\r\n\r\n" + text;
}

// One kept-alive exchange with a whole answer; false: not a 200.
bool exchange(const Fd& fd, const std::string& bytes) {
  if (!send_all(fd, bytes)) return false;
  std::string in;
  char block[65536];
  size_t need = 0;
  while (need == 0 || in.size() < need) {
    const ssize_t n = ::recv(fd.get(), block, sizeof block, 0);
    if (n <= 0) return false;
    in.append(block, static_cast<size_t>(n));
    const size_t end = in.find("\r\n\r\n");
    if (need > 0 || end == std::string::npos) continue;
    const size_t at = in.find("Content-Length: ");
    if (at == std::string::npos || !in.starts_with("HTTP/1.1 200")) return false;
    size_t length = 0;
    for (size_t i = at + 16; in[i] >= '0' && in[i] <= '9'; ++i) length = length * 10 + static_cast<size_t>(in[i] - '0');
    need = end + 4 + length;
  }
  return true;
}

Result<void> complete(EngineClient& engine, uint64_t& id, const std::string& prompt) {
  const uint64_t prompt_id = ++id;
  const protocol::Prepare prepare{.input = protocol::PrepareText{.text = prompt}};
  TRY(engine.send(FrameType::prepare, prompt_id, prepare.to_json()));
  TRY_ASSIGN(const Frame prepared, engine.next_of(prompt_id));
  if (prepared.type != FrameType::prepared) return make_error(Errc::io, prepared.payload);
  protocol::Submit submit{.prompt_id = prompt_id, .max_tokens = 1, .ignore_eos = true, .credit = 64};
  submit.sampling.temperature = 0;
  const uint64_t submit_id = ++id;
  TRY(engine.send(FrameType::submit, submit_id, submit.to_json()));
  while (true) {
    TRY_ASSIGN(const Frame frame, engine.next_of(submit_id));
    if (frame.type != FrameType::event) return make_error(Errc::io, frame.payload);
    if (frame.payload.find("\"finish\"") != std::string::npos) break;
  }
  std::string release;
  append_frame(release, FrameType::release, prompt_id, "");
  return engine.send_bytes(release);
}

int pairs(const std::string& socket, int port, const std::string& key, size_t bytes, int repeats) {
  auto engine = EngineClient::connect(socket);
  if (!engine.ok() || !engine->hello_until_ready().ok()) return 2;
  const Fd http = connect_tcp(port);
  const std::string prompt(bytes, 'a');
  const std::string request = request_bytes(key, prompt, 1, false);
  uint64_t id = 0;
  std::vector<int64_t> through, direct;
  for (int i = 0; i < repeats + 10; ++i) {
    for (int side = 0; side < 2; ++side) {
      const bool is_http = (i + side) % 2 == 0;
      const auto start = Clock::now();
      if (is_http ? !exchange(http, request) : !complete(*engine, id, prompt).ok()) return 2;
      if (i >= 10) (is_http ? through : direct).push_back(us_since(start));
    }
  }
  std::printf("%lld %lld\n", static_cast<long long>(quantile(through, 0.5)), static_cast<long long>(quantile(direct, 0.5)));
  return 0;
}

int load(int port, const std::string& key, size_t bytes, int clients, int repeats) {
  const std::string request = request_bytes(key, std::string(bytes, 'a'), 1, false);
  std::vector<std::vector<int64_t>> times(static_cast<size_t>(clients));
  const auto start = Clock::now();
  {
    std::vector<std::jthread> threads;
    for (auto& mine : times) {
      threads.emplace_back([&mine, &request, port, repeats] {
        const Fd http = connect_tcp(port);
        for (int i = 0; i < repeats; ++i) {
          const auto began = Clock::now();
          if (!exchange(http, request)) return;
          mine.push_back(us_since(began));
        }
      });
    }
  }
  const double seconds = static_cast<double>(us_since(start)) / 1e6;
  std::vector<int64_t> all;
  for (const auto& mine : times) all.insert(all.end(), mine.begin(), mine.end());
  std::printf("%zu %.3f %lld\n", all.size(), seconds, static_cast<long long>(quantile(all, 0.5)));
  return all.size() == static_cast<size_t>(clients) * static_cast<size_t>(repeats) ? 0 : 2;
}

// The first `stalled` have the least room that the kernel gives a reader, and are never read.
int streams(int port, const std::string& key, size_t count, size_t stalled, int from_s, int to_s, int64_t tokens) {
  const std::string request = request_bytes(key, "a", tokens, true);
  std::vector<Fd> open;
  for (size_t i = 0; i < count; ++i) {
    open.push_back(connect_tcp(port, i < stalled));
    if (!open.back().valid() || !send_all(open.back(), request)) return 2;
  }
  std::vector<pollfd> wait;
  for (size_t i = stalled; i < count; ++i) wait.push_back({.fd = open[i].get(), .events = POLLIN, .revents = 0});
  std::vector<Clock::time_point> last(wait.size());
  std::vector<int64_t> gaps;
  const auto start = Clock::now();
  char block[65536];
  while (us_since(start) < int64_t{1'000'000} * to_s) {
    if (::poll(wait.data(), wait.size(), 100) <= 0) continue;
    const auto now = Clock::now();
    const bool counts = us_since(start) > int64_t{1'000'000} * from_s;
    for (size_t i = 0; i < wait.size(); ++i) {
      if ((wait[i].revents & (POLLIN | POLLHUP)) == 0) continue;
      if (::recv(wait[i].fd, block, sizeof block, MSG_DONTWAIT) <= 0) return 2;  // no stream may end so early
      if (counts && last[i] != Clock::time_point{}) {
        gaps.push_back(std::chrono::duration_cast<std::chrono::microseconds>(now - last[i]).count());
      }
      last[i] = now;
    }
  }
  print_quantiles(gaps);
  return gaps.empty() ? 2 : 0;
}

// The stamps "@N;" in these bytes; one that is cut by their end is left out.
void note_stamps(std::string_view bytes, std::vector<int64_t>& late_us) {
  const int64_t now = Clock::now().time_since_epoch().count();
  for (size_t at = bytes.find('@'); at != std::string_view::npos; at = bytes.find('@', at + 1)) {
    int64_t stamp = 0;
    const auto [end, code] = std::from_chars(bytes.data() + at + 1, bytes.data() + bytes.size(), stamp);
    if (code == std::errc() && end != bytes.data() + bytes.size() && *end == ';') late_us.push_back((now - stamp) / 1000);
  }
}

// What reads the engine's own socket: all streams come on one connection.
Result<Fd> relay_direct(EngineClient& engine, size_t count, int64_t tokens) {
  uint64_t id = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t prompt_id = ++id;
    const protocol::Prepare prepare{.input = protocol::PrepareText{.text = "a"}};
    TRY(engine.send(FrameType::prepare, prompt_id, prepare.to_json()));
    TRY_ASSIGN(const Frame prepared, engine.next_of(prompt_id));
    if (prepared.type != FrameType::prepared) return make_error(Errc::io, prepared.payload);
    protocol::Submit submit{.prompt_id = prompt_id, .max_tokens = tokens, .ignore_eos = true, .credit = tokens};
    submit.sampling.temperature = 0;
    TRY(engine.send(FrameType::submit, ++id, submit.to_json()));
  }
  return Fd(::dup(engine.fd()));
}

int relay(const std::string& where, const std::string& key, size_t count, int seconds, int64_t tokens) {
  std::vector<Fd> open;
  auto engine = where.front() == '/' ? EngineClient::connect(where) : Result<EngineClient>(make_error(Errc::io, ""));
  if (engine.ok()) {
    if (!engine->hello_until_ready().ok()) return 2;
    auto direct = relay_direct(*engine, count, tokens);
    if (!direct.ok()) return 2;
    open.push_back(std::move(*direct));
  } else {
    const std::string request = request_bytes(key, "a", tokens, true);
    for (size_t i = 0; i < count; ++i) {
      open.push_back(connect_tcp(std::atoi(where.c_str()), false));
      if (!open.back().valid() || !send_all(open.back(), request)) return 2;
    }
  }
  std::vector<pollfd> wait;
  for (const Fd& each : open) wait.push_back({.fd = each.get(), .events = POLLIN, .revents = 0});
  std::vector<int64_t> late_us;
  char block[65536];
  const auto start = Clock::now();
  bool begun = false;
  while (us_since(start) < int64_t{1'000'000} * seconds) {
    if (::poll(wait.data(), wait.size(), 100) <= 0) continue;
    if (!begun && us_since(start) > 1'000'000) {  // the first second is the start of all of them
      begun = true;
      late_us.clear();
    }
    for (const pollfd& each : wait) {
      if ((each.revents & (POLLIN | POLLHUP)) == 0) continue;
      const ssize_t n = ::recv(each.fd, block, sizeof block, MSG_DONTWAIT);
      if (n <= 0) return 2;
      note_stamps(std::string_view(block, static_cast<size_t>(n)), late_us);
    }
  }
  print_quantiles(late_us);
  return late_us.empty() ? 2 : 0;
}

}  // namespace
}  // namespace tandem::tests

int main(int argc, char** argv) {
  const std::vector<std::string> a(argv + 1, argv + argc);
  const auto number = [&](size_t i) {
    int value = 0;
    std::from_chars(a[i].data(), a[i].data() + a[i].size(), value);
    return value;
  };
  const auto size = [&](size_t i) { return static_cast<size_t>(number(i)); };
  if (a.size() == 6 && a[0] == "pairs") return tandem::tests::pairs(a[1], number(2), a[3], size(4), number(5));
  if (a.size() == 6 && a[0] == "load") return tandem::tests::load(number(1), a[2], size(3), number(4), number(5));
  if (a.size() == 8 && a[0] == "streams") {
    return tandem::tests::streams(number(1), a[2], size(3), size(4), number(5), number(6), number(7));
  }
  if (a.size() == 6 && a[0] == "relay") return tandem::tests::relay(a[1], a[2], size(3), number(4), number(5));
  std::fprintf(stderr, "see the first lines of gateway_bench.cpp\n");
  return 2;
}
