// tandemd and the real guard: started, adopted, replaced, missed; and what tandemd does without it.
#include "service/guard_watch.h"

#include <fcntl.h>

#include <atomic>
#include <filesystem>

#include "memory_budget/guard_claim.h"
#include "tests/support/incident_recorder.h"
#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

constexpr int64_t kTotalKb = 127'611'699;  // 121.7 GiB
using budget::kGiB;

// A made-up /proc/meminfo that is rewritten in place.
class FakeHost {
 public:
  FakeHost() {
    std::filesystem::create_directories(dir_.path() + "/proc");
    available(60);
  }
  void available(double gib) const {
    const auto kb = static_cast<int64_t>(gib * 1024 * 1024);
    std::string text = "MemTotal: " + std::to_string(kTotalKb) + " kB\nMemFree: " + std::to_string(kb) +
                       " kB\nMemAvailable: " + std::to_string(kb) + " kB\n";
    text.resize(200, ' ');
    const Fd file(::open((root() + "/proc/meminfo").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    REQUIRE(::pwrite(file.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  }
  [[nodiscard]] const std::string& root() const { return dir_.path(); }

 private:
  TempDir dir_;
};

struct Watched {
  explicit Watched(const std::string& mode = "off") {
    world.begin();
    REQUIRE(world.until_ready(0));
    REQUIRE(world.until_ready(1));
    options.guard = {.mode = mode,
                     .binary = binary_path("tandem-guard"),
                     .page = world.dir.path() + "/guard.page",
                     .blackbox = world.dir.path() + "/blackbox",
                     .watchdog = "",
                     .log = world.dir.path() + "/guard.log"};
    options.root = host.root();
    options.floors = budget::floors_for(kTotalKb * 1024);
    options.model_files = {world.config.default_model.file};
    options.default_batch_tokens = 512;
    options.optional_batch_tokens = 512;
    open();
  }
  ~Watched() {
    if (watch) watch->stop(false);
  }
  void open() {
    watch.reset();
    // The guard goes by the real clock.
    const Clock& clock = options.guard.mode == "off" ? static_cast<const Clock&>(world.clock) : real_clock;
    auto opened = GuardWatch::open(options, clock, *world.supervisor, metrics, incidents);
    INFO((opened.ok() ? "" : opened.error().message));
    REQUIRE(opened.ok());
    watch = std::move(*opened);
  }
  bool until(const std::function<bool()>& condition) {
    return world.until([&] {
      watch->tick();
      return condition();
    });
  }
  [[nodiscard]] size_t count(IncidentKind kind) const {
    const auto events = incidents.events();
    return static_cast<size_t>(
        std::count_if(events.begin(), events.end(), [&](const auto& e) { return e.raised && e.kind == kind; }));
  }
  [[nodiscard]] bool quiet() const {
    const auto events = incidents.events();
    return std::none_of(events.begin(), events.end(), [](const auto& e) { return e.raised; });
  }

  World world;
  SystemClock real_clock;
  FakeHost host;
  GuardWatch::Options options;
  Metrics metrics;
  IncidentRecorder incidents;
  std::unique_ptr<GuardWatch> watch;
};

TEST_CASE("without a guard tandemd goes by its own samples: black kills the optional model, and it comes back") {
  Watched w;
  w.watch->tick();
  CHECK(w.watch->pressure().level == budget::Level::green);
  CHECK_FALSE(w.watch->pressure().from_guard);
  const int64_t pid = w.world.status(1).pid;
  w.host.available(3);
  CHECK(w.until([&] { return w.world.state(1) == ModelState::stopped; }));
  CHECK(w.watch->pressure().level == budget::Level::black);
  CHECK(w.watch->pressure().optional_held);
  // Said once, by the restart machine, which must not take it for a crash.
  const std::string said = w.world.incidents.open["stopped_by_guard beta"];
  CHECK(said.starts_with("stopped by tandemd, in the guard's place, (kill, black) with 3 GiB available"));
  CHECK(w.count(IncidentKind::stopped_by_guard) == 0);
  CHECK_FALSE(w.world.incidents.open.contains("died beta"));
  CHECK(w.incidents.open(IncidentKind::memory_low, ""));
  CHECK(w.world.state(0) == ModelState::ready);
  CHECK_FALSE(Process::open(static_cast<pid_t>(pid)).ok());
  CHECK(w.metrics.render().find("tandem_shed{step=\"optional_off\"} 1") != std::string::npos);
  w.host.available(60);
  for (int i = 0; i < 4000 && w.watch->pressure().level != budget::Level::green; ++i) {
    w.world.clock.advance(std::chrono::milliseconds(100));
    w.watch->tick();
  }
  CHECK(w.watch->pressure().level == budget::Level::green);
  CHECK(w.until([&] { return w.world.state(1) == ModelState::ready; }));
  w.watch->tick();
  CHECK_FALSE(w.world.incidents.open.contains("stopped_by_guard beta"));
  CHECK_FALSE(w.incidents.open(IncidentKind::memory_low, ""));
  CHECK(w.metrics.render().find("tandem_shed{step=\"optional_off\"} 0") != std::string::npos);
}

TEST_CASE("a foreign control page is an error that names it") {
  Watched w;
  std::ofstream(w.world.dir.path() + "/other") << std::string(4096, 'x');
  w.options.guard.page = w.world.dir.path() + "/other";
  const auto opened = GuardWatch::open(w.options, w.world.clock, *w.world.supervisor, w.metrics, w.incidents);
  REQUIRE_FALSE(opened.ok());
  CHECK(opened.error().code == Errc::corrupt);
}

}  // namespace

// The guard's own samples are of the real host here: only its life is looked at.
TEST_CASE("a guard is started, outlives its tandemd, is adopted, and is started again when it dies") {
  Watched w("child");
  const auto guard = [&] { return budget::guard_of_page(w.options.guard.page); };
  REQUIRE(w.until([&] { return guard() > 0 && w.watch->pressure().from_guard; }));
  const int64_t first = guard();
  CHECK(w.watch->pressure().guard_pid == first);
  CHECK(w.quiet());

  w.watch.reset();  // a tandemd that crashed asks nobody to stop
  CHECK(guard() == first);
  w.open();
  REQUIRE(w.until([&] { return w.watch->pressure().guard_pid == first; }));
  CHECK(w.quiet());

  auto process = Process::open(static_cast<pid_t>(first));
  REQUIRE(process.ok());
  CHECK(process->signal(SIGKILL));
  REQUIRE(w.until([&] { return guard() > 0 && guard() != first; }));
  CHECK(w.until([&] { return w.watch->pressure().from_guard; }));
  CHECK(w.count(IncidentKind::guard_missing) == 1);
  CHECK_FALSE(w.incidents.open(IncidentKind::guard_missing, ""));
  CHECK(w.watch->pressure().guard_restarts == 1);

  const int64_t second = guard();
  w.watch->stop(false);  // in order
  CHECK(guard() == 0);
  CHECK_FALSE(Process::open(static_cast<pid_t>(second)).ok());
}

TEST_CASE("a guard that hangs is an incident within seconds, and one once; then it looks again") {
  Watched w("child");
  REQUIRE(w.until([&] { return w.watch->pressure().from_guard; }));
  auto process = Process::open(static_cast<pid_t>(w.watch->pressure().guard_pid));
  REQUIRE(process.ok());
  CHECK(process->signal(SIGSTOP));
  CHECK(w.until([&] { return !w.watch->pressure().from_guard; }));
  CHECK(w.count(IncidentKind::guard_blind) == 1);
  CHECK(w.metrics.render().find("tandem_guard_up 0") != std::string::npos);
  CHECK(process->signal(SIGCONT));
  CHECK(w.until([&] { return w.watch->pressure().from_guard; }));
  CHECK(w.count(IncidentKind::guard_blind) == 1);
}

TEST_CASE("a guard that was told other things is replaced; one that cannot start is missed") {
  Watched w("child");
  REQUIRE(w.until([&] { return w.watch->pressure().from_guard; }));
  const int64_t first = w.watch->pressure().guard_pid;
  w.watch.reset();
  w.options.guard.blackbox += "2";
  w.open();
  CHECK(w.until([&] { return std::filesystem::exists(w.options.guard.blackbox); }));
  CHECK(w.until([&] { return w.watch->pressure().from_guard; }));
  CHECK(w.watch->pressure().guard_pid != first);
  CHECK(w.quiet());

  w.watch->stop(false);
  w.options.guard.binary = "/nonexistent/tandem-guard";
  w.open();
  CHECK(w.until([&] { return w.count(IncidentKind::guard_missing) == 1; }));
  CHECK(w.watch->pressure().guard_problem.find("/nonexistent/tandem-guard") != std::string::npos);
}

}  // namespace tandem::service
