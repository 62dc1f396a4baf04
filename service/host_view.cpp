#include "service/host_view.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "memory_budget/plan_box.h"

namespace tandem::service {
namespace {

constexpr size_t kHoldersMax = 3;
constexpr int64_t kHolderBytesMin = int64_t{256} << 20;

class ProcHostView final : public HostView {
 public:
  ProcHostView(budget::HostProbe probe, const budget::LevelFloors& floors, const ControlPage* page,
               const DriverMemory* driver)
      : probe_(std::move(probe)), levels_(floors), page_(page), driver_(driver) {}

  budget::HostSight look(int64_t now_ms) override {
    // A host that cannot even show its memory keeps the last reading.
    (void)probe_.read(reading_);
    budget::HostSight sight;
    sight.now_ms = now_ms;
    sight.available_bytes = budget::allocatable_bytes(reading_.memory);
    sight.free_bytes = reading_.memory.free;
    sight.big_blocks = budget::blocks_at_least(reading_.buddy, 9);
    sight.mapped_bytes = std::max<int64_t>(reading_.memory.mapped - reading_.memory.shmem, 0);
    sight.level = levels_
                      .update({.at_ms = now_ms,
                               .available_bytes = reading_.memory.available,
                               .free_bytes = reading_.memory.free,
                               .psi_some_avg10 = reading_.psi.some.avg10,
                               .psi_full_avg10 = reading_.psi.full.avg10,
                               .allocstalls = reading_.vmstat.allocstalls,
                               .compact_fails = reading_.vmstat.compact_fails})
                      .level;
    if (page_ == nullptr) return sight;
    if (const auto report = page_->report(now_ms); report.has_value()) {
      sight.level = static_cast<budget::Level>(
          std::min<uint32_t>(report->level, static_cast<uint32_t>(budget::Level::black)));
      note_actions(*report);
    }
    return sight;
  }

  [[nodiscard]] int64_t oom_kills() const override { return reading_.vmstat.oom_kills; }
  GroupMemory memory_of(const ProcessGroup& group) override {
    GroupMemory memory = group_memory(group);
    if (driver_ == nullptr) return memory;
    const DriverMemory::Held held = driver_->of(memory.pids);
    memory.driver_bytes = held.bytes;
    memory.driver_unknown = !held.known;
    return memory;
  }
  [[nodiscard]] bool driver_holds(const std::vector<pid_t>& pids) const override {
    return driver_ != nullptr && driver_->of(pids).listed;
  }
  [[nodiscard]] const budget::LevelFloors& floors() const override { return levels_.floors(); }
  std::optional<GuardStop> guard_stop() override { return std::exchange(stop_, std::nullopt); }

  std::vector<budget::Holder> holders(const std::vector<pid_t>& ours) override {
    std::vector<budget::Holder> all;
    std::error_code code;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", code)) {
      const std::string name = entry.path().filename().string();
      pid_t pid = 0;
      const auto [end, bad] = std::from_chars(name.data(), name.data() + name.size(), pid);
      if (bad != std::errc() || end != name.data() + name.size()) continue;
      if (std::find(ours.begin(), ours.end(), pid) != ours.end()) continue;
      budget::ProcessMemory memory;
      if (!budget::parse_process_status(text_of(entry.path() / "status"), memory)) continue;
      const int64_t bytes = memory.anon + memory.shmem;
      if (bytes < kHolderBytesMin) continue;
      std::string command = text_of(entry.path() / "comm");
      if (!command.empty() && command.back() == '\n') command.pop_back();
      all.push_back({.name = command + " (process " + name + ")", .bytes = bytes});
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    if (all.size() > kHoldersMax) all.resize(kHoldersMax);
    return all;
  }

 private:
  static std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  // The first report only says how far the guard had come before us.
  void note_actions(const budget::GuardReport& report) {
    const bool news = heard_ && report.actions != actions_ && report.role < budget::kRoleCount;
    heard_ = true;
    actions_ = report.actions;
    if (!news) return;
    stop_ = GuardStop{.role = static_cast<budget::Role>(report.role),
                      .how = guard_stop_text("the guard", static_cast<budget::GuardActionKind>(report.action),
                                             static_cast<budget::GuardReason>(report.reason),
                                             report.available_bytes)};
  }

  budget::HostProbe probe_;
  budget::HostReading reading_;
  budget::LevelMachine levels_;
  const ControlPage* const page_;
  const DriverMemory* const driver_;
  bool heard_ = false;
  uint64_t actions_ = 0;
  std::optional<GuardStop> stop_;
};

}  // namespace

Result<std::unique_ptr<HostView>> make_host_view(const budget::LevelFloors& floors,
                                                 const ControlPage* page, const DriverMemory* driver) {
  TRY_ASSIGN(budget::HostProbe probe, budget::HostProbe::open(""));
  return std::unique_ptr<HostView>(std::make_unique<ProcHostView>(std::move(probe), floors, page, driver));
}

std::string guard_stop_text(const std::string& who, budget::GuardActionKind action, budget::GuardReason reason,
                            int64_t available_bytes) {
  return "stopped by " + who + " (" + budget::guard_action_name(action) + ", " + budget::guard_reason_name(reason) +
         ") with " + budget::size_text(available_bytes) + " available";
}

}  // namespace tandem::service
