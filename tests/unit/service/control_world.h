// A supervisor over fake engines in a directory of its own, stepped by hand with a FakeClock. Every
// engine that it ever started is ended by the destructor.
#pragma once

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "service/config.h"
#include "service/launcher.h"
#include "service/process.h"
#include "service/supervisor.h"
#include "tests/support/catch.h"

namespace tandem::service {

class TempDir {
 public:
  TempDir() {
    std::string pattern = "/tmp/tandem-control-XXXXXX";
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string binary_path(const std::string& name) {
  const char* folder = std::getenv("TANDEM_BIN_DIR");
  return (folder == nullptr ? std::string("bin") : std::string(folder)) + "/" + name;
}

inline void write_script(const std::string& path, const std::string& lines) {
  std::ofstream(path) << "fake-engine\n" << lines;
}

// A host with as much memory as a test says, and no noise.
class FakeHost final : public HostView {
 public:
  budget::HostSight look(int64_t now_ms) override {
    budget::HostSight sight;
    sight.now_ms = now_ms;
    sight.available_bytes = available_bytes;
    sight.free_bytes = available_bytes;
    sight.level = level;
    return sight;
  }
  [[nodiscard]] int64_t oom_kills() const override { return kills; }
  GroupMemory memory_of(const ProcessGroup&) override { return memory; }
  [[nodiscard]] bool driver_holds(const std::vector<pid_t>& pids) const override { return in_driver && !pids.empty(); }
  std::vector<budget::Holder> holders(const std::vector<pid_t>&) override { return others; }
  [[nodiscard]] const budget::LevelFloors& floors() const override { return floors_; }
  std::optional<GuardStop> guard_stop() override { return std::exchange(stop, std::nullopt); }

  int64_t available_bytes = 100 * budget::kGiB;
  budget::Level level = budget::Level::green;
  int64_t kills = 0;
  bool in_driver = false;  // the driver lists a process of the last group
  GroupMemory memory{.members = 1};
  std::vector<budget::Holder> others;
  std::optional<GuardStop> stop;

 private:
  const budget::LevelFloors floors_ = budget::floors_for(121 * budget::kGiB);
};

class FakeReclaimer final : public Reclaimer {
 public:
  bool start() override {
    if (on_start) on_start();
    ++starts;
    return answers;
  }
  bool take_done() override { return std::exchange(done, false); }

  bool answers = false;
  bool done = false;
  int starts = 0;
  std::function<void()> on_start;
};

class FakeIncidents final : public IncidentSink {
 public:
  void raise(IncidentKind kind, std::string_view model, std::string text, Json) override {
    open[std::string(incident_kind_name(kind)) + " " + std::string(model)] = std::move(text);
    ++raised;
  }
  void clear(IncidentKind kind, std::string_view model) override {
    open.erase(std::string(incident_kind_name(kind)) + " " + std::string(model));
  }
  std::map<std::string, std::string> open;
  int raised = 0;
};

class World {
 public:
  explicit World(const std::string& default_script = "", const std::string& optional_script = "") {
    write_script(dir.path() + "/default.script", default_script);
    write_script(dir.path() + "/optional.script", optional_script);
    config.server.run_dir = dir.path();
    config.engines.binary = binary_path("fake_engine");
    config.engines.trial_deadline = Duration::zero();  // scripts count the requests
    config.default_model.name = "alpha";
    config.default_model.file = dir.path() + "/default.script";
    config.default_model.aliases = {"fast"};
    config.optional_model.emplace();
    config.optional_model->name = "beta";
    config.optional_model->file = dir.path() + "/optional.script";
  }
  ~World() {
    if (supervisor == nullptr) return;
    supervisor->begin_stop(false);
    CHECK(until([&] { return supervisor->stopped(); }));
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Supervisor::Outside outside() {
    return {.host = host, .reclaimer = reclaimer, .incidents = incidents, .page = page, .learned = learned, .describe = describe};
  }
  void begin() {
    launcher = make_child_launcher();
    supervisor = std::make_unique<Supervisor>(config, *launcher, clock, outside(), [this] { ++changes; });
    supervisor->begin();
  }
  // Steps until the condition holds; fake time runs along with real time.
  bool until(const std::function<bool()>& condition,
             std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      const auto before = std::chrono::steady_clock::now();
      supervisor->poll_once(std::chrono::milliseconds(5));
      clock.advance(std::chrono::steady_clock::now() - before);
    }
    return true;
  }
  Tenant& tenant(size_t i = 0) { return *supervisor->tenants()[i]; }
  ModelStatus status(size_t i = 0) { return tenant(i).status(); }
  ModelState state(size_t i = 0) { return status(i).state; }
  bool until_ready(size_t i = 0) {
    return until([&] { return state(i) == ModelState::ready; });
  }
  // Kills the engine of a model; the kernel's answer is awaited by until().
  void kill_engine(size_t i = 0) {
    auto process = Process::open(static_cast<pid_t>(status(i).pid));
    REQUIRE(process.ok());
    CHECK(process->signal(SIGKILL));
  }

  TempDir dir;
  Config config;
  FakeClock clock;
  FakeHost host;
  FakeReclaimer reclaimer;
  FakeIncidents incidents;
  std::unique_ptr<Launcher> launcher;
  std::unique_ptr<Supervisor> supervisor;
  int changes = 0;
  ControlPage* page = nullptr;
  LearnedBook* learned = nullptr;
  Describer describe = nullptr;
};

inline SteadyTime soon(std::chrono::milliseconds by = std::chrono::seconds(10)) {
  return std::chrono::steady_clock::now() + by;
}

inline std::unique_ptr<Prompt> prepare_text(Tenant& tenant, const std::string& text = "hi") {
  auto prompt = tenant.prepare({.input = protocol::PrepareText{.text = text}}, soon());
  INFO((prompt.ok() ? "" : prompt.error().message));
  REQUIRE(prompt.ok());
  return std::move(*prompt);
}

}  // namespace tandem::service
