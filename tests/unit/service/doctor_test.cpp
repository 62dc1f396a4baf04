// tandemctl doctor over simulated hosts: a well kept GB10, a badly kept one, a developer's machine.
#include "service/ctl/doctor.h"

#include <filesystem>
#include <fstream>

#include "tests/unit/service/control_world.h"

namespace tandem::service::ctl {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

class Host {
 public:
  void file(const std::string& path, const std::string& text) {
    const fs::path at = dir.path() + path;
    fs::create_directories(at.parent_path());
    std::ofstream(at, std::ios::binary) << text;
  }
  void symlink(const std::string& path, const std::string& target) {
    const fs::path at = dir.path() + path;
    fs::create_directories(at.parent_path());
    fs::remove(at);
    fs::create_symlink(target, at);
  }
  void remove(const std::string& path) { fs::remove_all(dir.path() + path); }
  void process(int64_t pid, const std::string& name, int64_t score = 0, int64_t locked_kib = 0,
               std::string command = "") {
    const std::string base = "/proc/" + std::to_string(pid) + "/";
    file(base + "comm", name + "\n");
    file(base + "oom_score_adj", std::to_string(score) + "\n");
    file(base + "status", "Name:\t" + name + "\nVmLck:\t    " + std::to_string(locked_kib) + " kB\n");
    limits(std::to_string(pid), "0", "65536", "65536");
    std::replace(command.begin(), command.end(), ' ', '\0');
    file(base + "cmdline", command);
  }
  void limits(const std::string& process, const std::string& core, const std::string& soft,
              const std::string& hard) {
    file("/proc/" + process + "/limits",
         "Limit                     Soft Limit           Hard Limit           Units     \n"
         "Max core file size        " + core + "                    unlimited            bytes     \n"
         "Max open files            " + soft + "                 " + hard + "              files     \n");
  }
  void memory(int64_t swap_gib, int64_t hugepages = 0) {
    file("/proc/meminfo", "MemTotal:       127602688 kB\nMemFree:        100000000 kB\n"
                          "MemAvailable:   120000000 kB\nSwapTotal:      " +
                              std::to_string(swap_gib << 20) + " kB\nSwapFree: 0 kB\nHugePages_Total: " +
                              std::to_string(hugepages) + "\nHugepagesize:       2048 kB\n");
  }
  std::vector<Finding> examine() {
    const HostFiles host(dir.path());
    return ctl::examine(host, wants);
  }
  Finding find(const std::string& check) {
    for (Finding& finding : examine()) {
      if (finding.check == check) return std::move(finding);
    }
    FAIL("no check " << check);
    return {};
  }
  Verdict verdict(const std::string& check) { return find(check).verdict; }

  TempDir dir;
  DoctorWants wants{.now_unix_s = 1'790'000'000, .disk = [](const std::string&) {
                      return std::optional(DiskSpace{.free_bytes = 100 * kGiB, .total_bytes = 900 * kGiB});
                    }};
};

// What both a developer's machine and an appliance have.
void fill_common(Host& host) {
  host.memory(8);
  host.file("/proc/sys/vm/swappiness", "60\n");
  host.file("/proc/sys/vm/overcommit_memory", "0\n");
  host.file("/proc/sys/vm/min_free_kbytes", "67584\n");
  host.file("/proc/sys/vm/watermark_boost_factor", "15000\n");
  host.file("/proc/sys/vm/watermark_scale_factor", "10\n");
  host.file("/proc/sys/kernel/core_pattern", "core\n");
  host.file("/proc/sys/kernel/osrelease", "6.11.0-1016-nvidia\n");
  host.file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  host.file("/proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
  host.file("/proc/buddyinfo", "Node 0, zone Normal 1\n");
  host.file("/proc/vmstat", "pswpin 0\n");
  host.file("/proc/self/cgroup", "0::/system.slice/ssh.service\n");
  host.limits("self", "0", "1024", "1048576");
  host.file("/run/systemd/timesync/synchronized", "");
  host.symlink("/usr/lib/systemd/system/default.target", "graphical.target");
}

void fill_good_gb10(Host& host) {
  fill_common(host);
  host.file("/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build\n");
  host.file("/proc/sys/vm/swappiness", "1\n");
  host.file("/etc/sysctl.d/90-tandem.conf", "# ours\nvm.swappiness = 1\n");
  host.symlink("/etc/systemd/system/default.target", "/usr/lib/systemd/system/multi-user.target");
  host.file("/dev/watchdog", "");
  host.process(10, "tandem-guard", -1000, 9000);
  host.process(11, "tandemd", -900);
  host.process(12, "tandem-engine", 300);
  host.process(13, "tandem-engine", 900);
}

TEST_CASE("a well kept box has nothing to mend") {
  Host host;
  fill_good_gb10(host);
  host.file("/m.gguf", "x");
  host.wants.state_dir = "/state";
  host.wants.model_files = {"/m.gguf"};
  const auto findings = host.examine();
  for (const Finding& finding : findings) {
    INFO(finding.check << ": " << finding.found << " " << finding.why);
    CHECK(finding.verdict == Verdict::ok);
    CHECK(finding.why.empty());
  }
  CHECK(findings_exit_code(findings) == kDone);
  CHECK(findings_json(findings).find("worst")->as_string() == "ok");
  CHECK(host.find("driver").found == "driver 580.95.05");
  CHECK(host.find("guard").found.find("9000 KiB locked") != std::string::npos);
}

TEST_CASE("a developer's machine: what is about a unified pool is not applicable") {
  Host host;
  fill_common(host);
  host.process(5, "gnome-shell");
  for (const char* check : {"swap", "swappiness", "headless", "kernel", "driver", "pins", "watchdog",
                            "guard", "kill_order", "state_disk", "models"}) {
    INFO(check);
    CHECK(host.verdict(check) == Verdict::not_applicable);
  }
  CHECK(findings_exit_code(host.examine()) == kDone);
  CHECK(findings_text(host.examine()).find("11 not applicable") != std::string::npos);
}

TEST_CASE("a host with no readable file at all is examined too") {
  Host host;
  const auto findings = host.examine();
  CHECK(findings.size() == 23);
  CHECK(host.verdict("probes") == Verdict::fail);
}

TEST_CASE("swap and swappiness") {
  Host host;
  fill_good_gb10(host);
  for (const auto& [gib, verdict] : std::vector<std::pair<int64_t, Verdict>>{
           {0, Verdict::warn}, {4, Verdict::note}, {8, Verdict::ok}, {16, Verdict::ok}, {64, Verdict::note}}) {
    host.memory(gib);
    INFO(gib);
    CHECK(host.verdict("swap") == verdict);
  }
  host.file("/proc/sys/vm/swappiness", "0\n");
  CHECK(host.verdict("swappiness") == Verdict::ok);
  host.file("/proc/sys/vm/swappiness", "2\n");
  CHECK(host.verdict("swappiness") == Verdict::warn);
  host.file("/proc/sys/vm/swappiness", "1\n");
  host.file("/etc/sysctl.d/90-tandem.conf", "# vm.swappiness = 1\n");
  CHECK(host.verdict("swappiness") == Verdict::note);
  host.file("/etc/sysctl.conf", "vm.swappiness=1\n");
  CHECK(host.verdict("swappiness") == Verdict::ok);
}

TEST_CASE("huge pages, zram, overcommit") {
  Host host;
  fill_good_gb10(host);
  host.file("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
  CHECK(host.verdict("thp") == Verdict::note);
  host.file("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  CHECK(host.verdict("thp") == Verdict::warn);
  host.remove("/sys/kernel/mm/transparent_hugepage/enabled");
  CHECK(host.verdict("thp") == Verdict::not_applicable);
  host.memory(8, 512);
  CHECK(host.verdict("hugetlb") == Verdict::warn);
  host.memory(8, 10240);
  CHECK(host.verdict("hugetlb") == Verdict::fail);
  CHECK(host.find("hugetlb").found.find("20") != std::string::npos);
  host.file("/sys/block/zram0/disksize", "0\n");
  CHECK(host.verdict("zram") == Verdict::ok);
  host.file("/sys/block/zram1/disksize", std::to_string(8 * kGiB) + "\n");
  CHECK(host.verdict("zram") == Verdict::warn);
  host.file("/proc/sys/vm/overcommit_memory", "2\n");
  CHECK(host.verdict("overcommit") == Verdict::warn);
  host.remove("/proc/pressure");
  CHECK(host.verdict("probes") == Verdict::warn);
}

TEST_CASE("watermarks: the defaults are fine, what is raised is not") {
  Host host;
  fill_good_gb10(host);
  host.file("/proc/sys/vm/min_free_kbytes", "1000000\n");
  CHECK(host.verdict("watermarks") == Verdict::ok);
  host.file("/proc/sys/vm/min_free_kbytes", "2097152\n");
  CHECK(host.verdict("watermarks") == Verdict::warn);
  host.file("/proc/sys/vm/min_free_kbytes", "4194304\n");
  CHECK(host.verdict("watermarks") == Verdict::fail);
  host.file("/proc/sys/vm/min_free_kbytes", "67584\n");
  host.file("/proc/sys/vm/watermark_scale_factor", "200\n");
  CHECK(host.verdict("watermarks") == Verdict::warn);
}

TEST_CASE("a container's limit is the smallest on the way up") {
  Host host;
  fill_good_gb10(host);
  host.file("/proc/self/cgroup", "1:name=x:/\n0::/a/b\n");
  const auto group = [&](const std::string& path, const std::string& max) {
    host.file("/sys/fs/cgroup" + path + "/memory.current", "1\n");
    host.file("/sys/fs/cgroup" + path + "/memory.max", max + "\n");
  };
  group("/a/b", "max");
  group("/a", "max");
  CHECK(host.verdict("container") == Verdict::ok);
  group("/a", std::to_string(8 * kGiB));
  CHECK(host.verdict("container") == Verdict::warn);
  CHECK(host.find("container").found.find("limited to 8 GiB") != std::string::npos);
  group("/a/b", std::to_string(2 * kGiB));
  CHECK(host.find("container").found.find("limited to 2 GiB") != std::string::npos);
  group("/a/b", "max");
  group("/a", std::to_string(1000 * kGiB));
  CHECK(host.verdict("container") == Verdict::ok);
  host.file("/.dockerenv", "");
  CHECK(host.verdict("container") == Verdict::note);
}

TEST_CASE("the guard runs, is locked, and goes last") {
  Host host;
  fill_good_gb10(host);
  host.process(10, "tandem-guard", -1000, 0);
  CHECK(host.verdict("guard") == Verdict::warn);
  host.process(10, "tandem-guard", 0, 9000);
  CHECK(host.verdict("guard") == Verdict::warn);
  host.remove("/proc/10");
  CHECK(host.verdict("guard") == Verdict::fail);
  CHECK(host.verdict("kill_order") == Verdict::ok);
  host.process(13, "tandem-engine", -900);
  CHECK(host.verdict("kill_order") == Verdict::warn);
  host.remove("/proc/11");
  CHECK(host.verdict("guard") == Verdict::not_applicable);
  CHECK(host.verdict("kill_order") == Verdict::not_applicable);
}

TEST_CASE("earlyoom: what matters is whether it comes before the guard") {
  Host host;
  fill_good_gb10(host);
  for (const auto& [command, verdict] : std::vector<std::pair<std::string, Verdict>>{
           {"earlyoom", Verdict::note},
           {"earlyoom -m 10 -s 100", Verdict::fail},
           {"earlyoom -m10,5 -s100,100", Verdict::fail},
           {"earlyoom -m 2,1 -s 100", Verdict::note},
           {"earlyoom --avoid x -s 100 -m 7", Verdict::fail}}) {
    INFO(command);
    host.process(20, "earlyoom", 0, 0, command);
    CHECK(host.verdict("earlyoom") == verdict);
  }
  host.process(20, "earlyoom", 0, 0, "earlyoom");
  host.memory(0);  // its swap condition always holds
  CHECK(host.verdict("earlyoom") == Verdict::fail);
}

TEST_CASE("systemd-oomd: by its limits, drop-ins included") {
  Host host;
  fill_good_gb10(host);
  host.process(21, "systemd-oomd");
  CHECK(host.verdict("systemd_oomd") == Verdict::note);
  host.file("/etc/systemd/oomd.conf", "[OOM]\n#SwapUsedLimit=10%\nSwapUsedLimit=85%\n");
  CHECK(host.verdict("systemd_oomd") == Verdict::note);
  host.file("/etc/systemd/oomd.conf.d/x.conf", "[OOM]\nDefaultMemoryPressureLimit=20%\n");
  CHECK(host.verdict("systemd_oomd") == Verdict::warn);
  CHECK(host.find("systemd_oomd").found.find("85 % of swap used and 20 %") != std::string::npos);
}

TEST_CASE("headless: the target and what runs") {
  Host host;
  fill_good_gb10(host);
  host.process(30, "gnome-shell");
  CHECK(host.verdict("headless") == Verdict::warn);
  host.remove("/proc/30");
  CHECK(host.verdict("headless") == Verdict::ok);
  host.remove("/etc/systemd/system/default.target");  // the distribution's: graphical
  CHECK(host.verdict("headless") == Verdict::warn);
}

TEST_CASE("core dumps: where they go and whether they may") {
  Host host;
  fill_good_gb10(host);
  const auto with = [&](const std::string& pattern, const std::string& limit) {
    host.file("/proc/sys/kernel/core_pattern", pattern + "\n");
    for (const char* process : {"12", "13"}) host.limits(process, limit, "1024", "65536");
    return host.verdict("core_dumps");
  };
  CHECK(with("core", "0") == Verdict::ok);
  CHECK(with("core", "unlimited") == Verdict::warn);
  CHECK(with("|/usr/lib/systemd/systemd-coredump %P", "0") == Verdict::note);
  CHECK(with("|/usr/share/apport/apport %p", "unlimited") == Verdict::warn);
  CHECK(with("", "unlimited") == Verdict::ok);
}

TEST_CASE("versions that are known to be bad, and updates that come by themselves") {
  Host host;
  fill_good_gb10(host);
  host.file("/proc/sys/kernel/osrelease", "7.0.0-1019-nvidia-64k\n");
  CHECK(host.verdict("kernel") == Verdict::fail);
  host.file("/etc/nv_tegra_release", "# R36 (release), REVISION: 4.7, GCID: 1, BOARD: generic\n");
  CHECK(host.verdict("driver") == Verdict::warn);
  host.file("/etc/nv_tegra_release", "# R38 (release), REVISION: 2.0, GCID: 1, BOARD: generic\n");
  CHECK(host.verdict("driver") == Verdict::ok);
  CHECK(host.find("driver").found == "Jetson Linux R38.2.0, driver 580.95.05");
  host.file("/etc/apt/apt.conf.d/20auto-upgrades", "APT::Periodic::Unattended-Upgrade \"1\";\n");
  CHECK(host.verdict("pins") == Verdict::note);
  host.file("/etc/apt/apt.conf.d/50unattended-upgrades",
            "Unattended-Upgrade::Package-Blacklist {\n  // \"linux-\";\n};\n");
  CHECK(host.verdict("pins") == Verdict::note);
  host.file("/etc/apt/apt.conf.d/50unattended-upgrades",
            "Unattended-Upgrade::Package-Blacklist {\n  \"linux-\";\n};\n");
  CHECK(host.verdict("pins") == Verdict::ok);
  host.remove("/dev/watchdog");
  CHECK(host.verdict("watchdog") == Verdict::note);
}

TEST_CASE("disks, models, descriptors, clock") {
  Host host;
  fill_good_gb10(host);
  DiskSpace space{.free_bytes = 256 * kMiB, .total_bytes = kGiB};
  host.wants.state_dir = "/var/lib/tandem";
  // The directory is not there yet: its parent's disk counts.
  host.wants.disk = [&space](const std::string& path) {
    return path == "/var/lib" ? std::optional(space) : std::nullopt;
  };
  CHECK(host.verdict("state_disk") == Verdict::ok);
  space.free_bytes -= 1;
  CHECK(host.verdict("state_disk") == Verdict::warn);
  space.free_bytes = 16 * kMiB - 1;
  CHECK(host.verdict("state_disk") == Verdict::fail);
  space = {.free_bytes = kGiB, .total_bytes = kGiB, .read_only = true};
  CHECK(host.verdict("state_disk") == Verdict::fail);

  host.wants.model_files = {"/models/a.gguf"};
  CHECK(host.verdict("models") == Verdict::fail);
  host.file("/models/a.gguf", "x");
  CHECK(host.verdict("models") == Verdict::ok);

  host.limits("11", "0", "1024", "4096");
  CHECK(host.verdict("descriptors") == Verdict::warn);
  host.limits("11", "0", "1024", "unlimited");
  CHECK(host.verdict("descriptors") == Verdict::ok);
  host.limits("11", "0", "1024", "4352");
  CHECK(host.verdict("descriptors") == Verdict::ok);

  host.remove("/run/systemd/timesync");
  CHECK(host.verdict("clock") == Verdict::note);
  host.process(40, "chronyd");
  CHECK(host.verdict("clock") == Verdict::ok);
  host.wants.now_unix_s = 1'000'000;
  CHECK(host.verdict("clock") == Verdict::fail);
}

TEST_CASE("the worst makes the exit code; everything that is wrong says why and how to mend it") {
  Host host;
  fill_common(host);
  CHECK(findings_exit_code({{.verdict = Verdict::note}}) == kDone);
  CHECK(findings_exit_code({{.verdict = Verdict::warn}, {.verdict = Verdict::ok}}) == kWarned);
  CHECK(findings_exit_code({{.verdict = Verdict::fail}, {.verdict = Verdict::warn}}) == kFoundFailure);
  fill_good_gb10(host);
  host.memory(0, 10240);
  host.file("/proc/sys/vm/swappiness", "60\n");
  host.process(20, "earlyoom", 0, 0, "earlyoom");
  host.process(21, "systemd-oomd");
  host.file("/proc/sys/kernel/osrelease", "7.0.0-1019-nvidia\n");
  const auto findings = host.examine();
  CHECK(findings_exit_code(findings) == kFoundFailure);
  for (const Finding& finding : findings) {
    INFO(finding.check);
    CHECK(finding.why.empty() == (finding.verdict <= Verdict::ok));
    CHECK(finding.fix.empty() == (finding.verdict <= Verdict::ok));
  }
  const std::string text = findings_text(findings);
  CHECK(text.find("Fix: sysctl vm.nr_hugepages=0") != std::string::npos);
  CHECK(findings_json(findings).find("worst")->as_string() == "fail");
}

TEST_CASE("files of a host are bounded and odd ones are no text") {
  Host host;
  host.file("/big", std::string((1 << 20) + 1, 'x'));
  host.file("/limit", std::string(1 << 20, 'x'));
  fs::create_directories(host.dir.path() + "/folder");
  const HostFiles files(host.dir.path());
  CHECK_FALSE(files.read("/big").has_value());
  CHECK(files.read("/limit")->size() == 1 << 20);
  CHECK_FALSE(files.read("/folder").has_value());
  CHECK_FALSE(files.read("/none").has_value());
  CHECK(keyed_value("a = 1\n a=2\nb=3\n", "a", '=') == "2");
  CHECK(keyed_value("#a=1\n", "a", '=').empty());
}

}  // namespace
}  // namespace tandem::service::ctl
