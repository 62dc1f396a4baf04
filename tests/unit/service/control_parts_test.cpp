// The small parts of the control plane: metrics, records, restart policy, processes, launchers,
// tandemctl's command line and HTTP reader.
#include <sys/stat.h>
#include <sys/wait.h>

#include "service/ctl/arguments.h"
#include "service/ctl/http_client.h"
#include "service/engine_record.h"
#include "service/metrics.h"
#include "service/record_keeper.h"
#include "service/spawn.h"
#include "tests/support/emulated.h"
#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("metrics print as Prometheus text") {
  Metrics metrics;
  metrics.counter("t_total", "Things", {{"model", "a\"b\\c\nd"}}).add(3);
  metrics.counter("t_total", "Things", {{"model", "x"}}).add();
  CHECK(&metrics.counter("t_total", "Things", {{"model", "x"}}) ==
        &metrics.counter("t_total", "", {{"model", "x"}}));
  metrics.gauge("g", "A gauge").set(2.5);
  Histogram& histogram = metrics.histogram("h_seconds", "Time", {}, {0.5, 1.0});
  for (const double value : {0.1, 0.5, 0.7, 9.0}) histogram.observe(value);
  int refreshed = 0;
  metrics.on_render([&] { metrics.gauge("g", "").set(++refreshed); });
  CHECK(metrics.render() ==
        "# HELP t_total Things\n# TYPE t_total counter\n"
        "t_total{model=\"a\\\"b\\\\c\\nd\"} 3\nt_total{model=\"x\"} 1\n"
        "# HELP g A gauge\n# TYPE g gauge\ng 1.0\n"
        "# HELP h_seconds Time\n# TYPE h_seconds histogram\n"
        "h_seconds_bucket{le=\"0.5\"} 2\nh_seconds_bucket{le=\"1.0\"} 3\n"
        "h_seconds_bucket{le=\"+Inf\"} 4\nh_seconds_sum 10.3\nh_seconds_count 4\n");
}

TEST_CASE("a record counts once, under bounded labels") {
  const TempDir dir;
  const auto store = Store::open({.path = dir.path() + "/t.db"});
  REQUIRE(store.ok());
  Metrics metrics;
  RecordKeeper keeper(metrics, **store, {"alpha"});
  keeper.record({.id = "1", .route = "/v1/completions", .model = "alpha", .decode_us = 4'000'000,
                 .first_token_us = 20'000, .total_us = 5'000'000, .prompt_tokens = 7,
                 .completion_tokens = 5, .status = 200, .reason = "stop"});
  keeper.record({.id = "2", .route = "/v1/completions", .model = "made up by a client",
                 .prompt_tokens = 9, .status = 404, .outcome = Outcome::rejected,
                 .reason = "model_not_found"});
  const std::string text = metrics.render();
  const auto has = [&](const char* line) { return text.find(line) != std::string::npos; };
  CHECK(has("vllm:prompt_tokens_total{model_name=\"alpha\"} 7\n"));
  CHECK(has("llamacpp:tokens_predicted_total{model_name=\"alpha\"} 5\n"));
  CHECK(has("vllm:request_success_total{model_name=\"alpha\",finished_reason=\"stop\"} 1\n"));
  CHECK(has("vllm:request_time_per_output_token_seconds_sum{model_name=\"alpha\"} 1.0\n"));
  CHECK(has("tandem_requests_total{model=\"\",route=\"/v1/completions\",outcome=\"rejected\"} 1\n"));
  CHECK_FALSE(has("made up"));
  CHECK((*store)->record_count().value() == 2);
}

TEST_CASE("processes are told by pidfd and start time") {
  const auto pid = spawn({"sleep", "100"}, {.own_session = true});
  REQUIRE(pid.ok());
  auto process = Process::open(*pid);
  REQUIRE(process.ok());
  CHECK_FALSE(process->exited());
  CHECK(process_start_ticks(*pid).value() >= process_start_ticks(::getpid()).value());
  CHECK(process_uid(*pid).value() == ::geteuid());
  CHECK(process->signal(SIGKILL));
  REQUIRE(process->wait(seconds(10)));
  // A zombie still has an entry in /proc and answers signal 0, but its pidfd says that it ended.
  CHECK(process->exited());
  CHECK_FALSE(Process::open(*pid).ok());
  CHECK(process->reap() == "killed by signal 9");
  CHECK_FALSE(Process::open(0).ok());
}

TEST_CASE("a program that does not exist is an error that names it") {
  const auto pid = spawn({"/no/such/program"}, {});
  if (tests::emulated()) {
    REQUIRE(pid.ok());
    int status = 0;
    REQUIRE(::waitpid(*pid, &status, 0) == *pid);
    CHECK(WEXITSTATUS(status) == 127);
    return;
  }
  REQUIRE_FALSE(pid.ok());
  CHECK(pid.error().message.find("/no/such/program") != std::string::npos);
}

// A systemctl of our own: it keeps what it was told, starts a process for `start`, and names it.
std::string fake_systemctl(const TempDir& dir) {
  const std::string path = dir.path() + "/systemctl";
  std::ofstream(path) << "#!/bin/sh\ncd " << dir.path() << "\necho \"$@\" >> calls\ncase $1 in\n"
                      << "start) sleep 100 >/dev/null 2>&1 & echo $! > pid;;\nshow) cat pid;;\n"
                      << "stop) kill -TERM $(cat pid);;\nkill) kill -KILL $(cat pid);;\nesac\n";
  REQUIRE(::chmod(path.c_str(), 0755) == 0);
  return path;
}

TEST_CASE("the systemd launcher writes the arguments, starts the unit and finds its process") {
  const TempDir dir;
  const auto launcher = make_systemd_launcher(fake_systemctl(dir));
  const LaunchRequest request{.instance = "default",
                              .binary = "/usr/bin/tandem-engine",
                              .arguments = {"--model", "/m/a.gguf", "--slots", "4"},
                              .run_dir = dir.path(),
                              .log_path = ""};
  auto process = launcher->launch(request);
  INFO((process.ok() ? "" : process.error().message));
  REQUIRE(process.ok());
  CHECK_FALSE(process->exited());
  launcher->terminate(*process, "default");
  CHECK(process->wait(seconds(10)));
  const auto text = [&](const char* name) {
    std::ifstream file(dir.path() + "/" + name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  CHECK(text("engine-default.env") == "TANDEM_ENGINE_ARGS=--model /m/a.gguf --slots 4\n");
  CHECK(text("calls") ==
        "start tandem-engine@default.service\n"
        "show --property=MainPID --value tandem-engine@default.service\n"
        "stop --no-block tandem-engine@default.service\n");
}

TEST_CASE("the systemd launcher refuses what it cannot pass and reports a failed start") {
  const TempDir dir;
  const auto launcher = make_systemd_launcher(fake_systemctl(dir));
  const auto spaced = launcher->launch(
      {.instance = "default", .binary = "x", .arguments = {"a b"}, .run_dir = dir.path(), .log_path = ""});
  REQUIRE_FALSE(spaced.ok());
  CHECK(spaced.error().code == Errc::invalid_argument);
  const auto broken = make_systemd_launcher("false")->launch(
      {.instance = "default", .binary = "x", .arguments = {}, .run_dir = dir.path(), .log_path = ""});
  REQUIRE_FALSE(broken.ok());
  CHECK(broken.error().message == "false start failed with status 1");
}

TEST_CASE("engine records are read strictly") {
  const TempDir dir;
  const std::string path = dir.path() + "/r.json";
  CHECK(read_engine_record(path).error().code == Errc::not_found);
  REQUIRE(write_engine_record(path, {.pid = 5, .start_ticks = 6, .config_hash = "c"}).ok());
  CHECK(read_engine_record(path)->start_ticks == 6);
  std::ofstream(path) << "{\"pid\": \"5\"}";
  CHECK(read_engine_record(path).error().code == Errc::corrupt);
  std::ofstream(path) << std::string(100'000, ' ');
  CHECK(read_engine_record(path).error().code == Errc::too_large);
}

using ctl::Arguments;
using ctl::CommandSpec;
using ctl::parse_arguments;
using ctl::ResponseReader;
using ctl::SseReader;

std::vector<CommandSpec> commands() {
  return {{"status", "", 0, 0, "s", {}},
          {"chat", "[TEXT...]", 0, 100, "c", {{"--model", "NAME", "m"}}},
          {"key add", "NAME", 1, 1, "k", {{"--scope", "SCOPE", "x"}}}};
}

std::string parse_error(const std::vector<std::string_view>& words) {
  const auto list = commands();
  const auto parsed = parse_arguments(words, list);
  return parsed.ok() ? "" : parsed.error().message;
}

TEST_CASE("the command line of tandemctl") {
  const auto list = commands();
  const auto parse = [&](const std::vector<std::string_view>& words) {
    auto parsed = parse_arguments(words, list);
    REQUIRE(parsed.ok());
    return std::move(*parsed);
  };
  const Arguments chat = parse({"--config", "f", "chat", "--model", "optional", "why", "--", "--x"});
  CHECK(chat.command->name == "chat");
  CHECK(chat.flag("--model") == "optional");
  CHECK(chat.flag("--config") == "f");
  CHECK(chat.positional == std::vector<std::string>{"why", "--x"});
  const Arguments key = parse({"key", "add", "me", "--scope=admin", "--json"});
  CHECK(key.command->name == "key add");
  CHECK(key.json);
  CHECK(key.flag("--scope") == "admin");
  CHECK(parse({"key", "add", "-h"}).help);
  CHECK(parse({}).command == nullptr);

  CHECK(parse_error({"statsu"}) ==
        "there is no command \"statsu\", did you mean \"status\"?; tandemctl --help lists them");
  CHECK(parse_error({"key", "ad", "x"}).find("did you mean \"key add\"?") != std::string::npos);
  CHECK(parse_error({"key", "add"}) == "usage: tandemctl key add NAME");
  CHECK(parse_error({"status", "--model", "x"}) == "unknown flag --model of status");
  CHECK(parse_error({"chat", "--model"}) == "--model needs a value: --model NAME");
  CHECK(parse_error({"status", "--json=1"}) == "a value is not possible for --json of status");
}

TEST_CASE("HTTP answers are read in any cuts") {
  const std::string chunked =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
      "6\r\nhello \r\n5;x=y\r\nworld\r\n0\r\n\r\n";
  for (size_t cut = 1; cut < chunked.size(); ++cut) {
    std::string body;
    ResponseReader reader([&](std::string_view bytes) { body += bytes; });
    for (size_t at = 0; at < chunked.size(); at += cut) {
      REQUIRE(reader.feed(std::string_view(chunked).substr(at, cut)).ok());
    }
    CHECK(reader.complete());
    const auto answer = reader.finish();
    REQUIRE(answer.ok());
    CHECK(answer->status == 200);
    CHECK(answer->content_type == "text/event-stream");
    CHECK(body == "hello world");
  }
}

TEST_CASE("errors keep their body; cut and foreign answers are errors") {
  ResponseReader refused([](std::string_view) {});
  REQUIRE(refused.feed("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope").ok());
  CHECK(refused.finish()->body == "nope");
  ResponseReader cut([](std::string_view) {});
  REQUIRE(cut.feed("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nnope").ok());
  CHECK(cut.finish().error().message == "the answer was cut off");
  ResponseReader foreign([](std::string_view) {});
  CHECK_FALSE(foreign.feed("SSH-2.0-OpenSSH\r\n\r\n").ok());
  ResponseReader empty([](std::string_view) {});
  CHECK_FALSE(empty.finish().ok());
}

TEST_CASE("events are split from a stream") {
  std::vector<std::string> data;
  SseReader reader([&](std::string_view text) { data.emplace_back(text); });
  for (const char c : std::string("data: {\"a\":1}\r\n\n: ping\n\ndata:two\n\ndata: [DONE]\n\n")) {
    reader.feed(std::string_view(&c, 1));
  }
  CHECK(data == std::vector<std::string>{"{\"a\":1}", "two", "[DONE]"});
}

}  // namespace
}  // namespace tandem::service
