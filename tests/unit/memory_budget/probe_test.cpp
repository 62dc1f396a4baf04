// The parsers of /proc with texts of real and of hostile hosts, and the probe on a root directory of
// the test's own.
#include "memory_budget/probe.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "tests/support/catch.h"

namespace tandem::budget {
namespace {

constexpr char kMeminfo[] =
    "MemTotal:       127600748 kB\nMemFree:          2904556 kB\nMemAvailable:   54525952 kB\n"
    "Buffers:            1000 kB\nCached:         52428800 kB\nSwapCached:            0 kB\n"
    "SwapTotal:      16777212 kB\nSwapFree:       16000000 kB\nAnonPages:       4194304 kB\n"
    "Slab:            1048576 kB\nKernelStack:       10240 kB\nPageTables:       20480 kB\n"
    "HugePages_Total:       0\nHugePages_Free:        0\nHugepagesize:       2048 kB\n";

// A directory that is gone with the test.
class Root {
 public:
  Root() {
    char name[] = "/tmp/tandem_probe_XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~Root() { std::filesystem::remove_all(path_); }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = std::filesystem::path(path_) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  }
  void process(int64_t pid, int64_t parent, int64_t group, int64_t anon_kib, const std::string& name) const {
    const std::string dir = "proc/" + std::to_string(pid);
    write(dir + "/stat", std::to_string(pid) + " (" + name + ") S " + std::to_string(parent) + " " +
                             std::to_string(group) + " " + std::to_string(group) +
                             " 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 1 2\n");
    write(dir + "/status", "Name:\t" + name + "\nUid:\t990\t990\t990\t990\nRssAnon:\t" +
                               std::to_string(anon_kib) + " kB\n");
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("meminfo: the fields, and what nobody names is the driver's") {
  Meminfo m;
  REQUIRE(parse_meminfo(kMeminfo, m));
  CHECK(m.total == int64_t{127600748} * 1024);
  CHECK(m.free == int64_t{2904556} * 1024);
  CHECK(m.available == int64_t{54525952} * 1024);
  CHECK(m.swap_free == int64_t{16000000} * 1024);
  CHECK(driver_residual(m) == (int64_t{127600748} - 2904556 - 1000 - 52428800 - 4194304 - 1048576 -
                               10240 - 20480) * 1024);
  CHECK(allocatable_bytes(m) == m.available);  // swap counts as nothing
  m.hugepages_total = 100;
  m.hugepages_free = 40;
  CHECK(allocatable_bytes(m) == 40 * 2048 * 1024);
  m.hugepages_free = int64_t{1} << 60;
  CHECK(allocatable_bytes(m) == 0);
}

TEST_CASE("meminfo: what is not of the form is refused and changes nothing") {
  const std::string good(kMeminfo);
  const auto with = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  Meminfo m;
  m.total = 7;
  for (const std::string& text :
       {std::string(), std::string("MemTotal: 1 kB\n"), with("MemFree: ", "MemFee: "),
        with("MemTotal:       127600748", "MemTotal: -127600748"), with("127600748 kB", "127600748 MB"),
        with("127600748 kB", "127600748"), with("54525952", "99999999999999999999999"),
        with("54525952", "127600749"),  // more available than there is
        with("2904556", "2904556x"), with("MemTotal:       127600748", "MemTotal: 0"),
        with("4194304", "9007199254740993000")}) {
    INFO(text.substr(0, 100));
    CHECK_FALSE(parse_meminfo(text, m));
  }
  CHECK(m.total == 7);
  REQUIRE(parse_meminfo(good + "MemFree: 1 kB\nno colon\n\0:::\n", m));  // the first of a key counts
  CHECK(m.free == int64_t{2904556} * 1024);
}

TEST_CASE("psi: hundredths of a percent") {
  Psi psi;
  REQUIRE(parse_psi("some avg10=12.34 avg60=0.07 avg300=100.00 total=123456\n"
                    "full avg10=8.00 avg60=0.00 avg300=0.00 total=9\n", psi));
  CHECK(psi.some.avg10 == 1234);
  CHECK(psi.some.avg60 == 7);
  CHECK(psi.some.avg300 == 10000);
  CHECK(psi.some.total_us == 123456);
  CHECK(psi.full.avg10 == 800);
  for (const char* text : {"", "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", "some avg10=1.2 avg60=0.00 avg300=0.00 total=0\n",
                           "some avg10=-1.00 avg60=0.00 avg300=0.00 total=0\n", "some avg10=101.00 avg60=0.00 avg300=0.00 total=0\n",
                           "some avg60=0.00 avg10=0.00 avg300=0.00 total=0\n", "some avg10=1.-5 avg60=0.00 avg300=0.00 total=0\n",
                           "some avg10=0.00\n"}) {
    INFO(text);
    CHECK_FALSE(parse_psi(text, psi));
  }
  CHECK(psi.some.avg10 == 1234);
}

TEST_CASE("buddyinfo: blocks by order over all zones") {
  Buddy buddy;
  REQUIRE(parse_buddyinfo("Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3 \n"
                          "Node 0, zone   Normal     41      1    585    468    420    279    164     31     16      2    566 \n", buddy));
  CHECK(buddy.orders == 11);
  CHECK(buddy.blocks[0] == 41);
  CHECK(buddy.blocks[8] == 17);
  CHECK(blocks_at_least(buddy, 9) == 1 + 3 + 2 + 566);
  CHECK(blocks_at_least(buddy, 30) == 0);
  CHECK_FALSE(parse_buddyinfo("", buddy));
  CHECK_FALSE(parse_buddyinfo("Node 0, zone Normal 1 x\n", buddy));
  CHECK_FALSE(parse_buddyinfo("Node 0, zone Normal -1\n", buddy));
  std::string many = "Node 0, zone Normal";
  for (int i = 0; i < 21; ++i) many += " 1";
  CHECK_FALSE(parse_buddyinfo(many, buddy));
}

TEST_CASE("vmstat: stalls of all zones are one") {
  Vmstat v;
  REQUIRE(parse_vmstat("pswpin 3\npswpout 4\nallocstall_dma 1\nallocstall_normal 20\nallocstall_movable 300\n"
                       "pgmajfault 5\noom_kill 6\ncompact_stall 7\ncompact_fail 8\ncompact_free_scanned 9\n", v));
  CHECK(v.allocstalls == 321);
  CHECK(v.swap_in_pages == 3);
  CHECK(v.swap_out_pages == 4);
  CHECK(v.major_faults == 5);
  CHECK(v.oom_kills == 6);
  CHECK(v.compact_stalls == 7);
  CHECK(v.compact_fails == 8);
  CHECK_FALSE(parse_vmstat("compact_fail 8\n", v));
  CHECK_FALSE(parse_vmstat("pswpin\n", v));
}

TEST_CASE("process stat: a name may hold brackets, blanks and lines") {
  ProcessStat s;
  REQUIRE(parse_process_stat("23531 (evil) R 1 1 (\n) S 22939 22940 18319 0 -1 4194304 100 0 0 0 0 0 0 0 20 0 1 0 1248349 3133440 380\n", s));
  CHECK(s.pid == 23531);
  CHECK(s.state == 'S');
  CHECK(s.parent == 22939);
  CHECK(s.group == 22940);
  CHECK(s.session == 18319);
  CHECK(s.start_ticks == 1248349);
  CHECK(std::string(s.name.data()) == "evil) R 1 1 (\n");
  for (const char* text : {"", "1 (a", "1 a) S 1 1 1", "x (a) S 1 1 1", "1 (a) S 1 1 1 0 0", "0 (a) S 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 5",
                           ")1 (", "1 (a) SS 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 5"}) {
    INFO(text);
    CHECK_FALSE(parse_process_stat(text, s));
  }
  const std::string longest = "5 (" + std::string(5000, 'x') + ") S 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 5";
  REQUIRE(parse_process_stat(longest, s));
  CHECK(std::string(s.name.data()).size() == 63);
}

TEST_CASE("process status and rollup") {
  ProcessMemory m;
  REQUIRE(parse_process_status("Name:\tUid:\t0\nUmask:\t0022\nUid:\t990\t0\t0\t0\nRssAnon:\t 112 kB\nRssFile:\t 5 kB\n", m));
  CHECK(m.uid == 990);
  CHECK(m.anon == 112 * 1024);
  CHECK_FALSE(parse_process_status("Uid:\t1\n", m));
  CHECK_FALSE(parse_process_status("Name:\tx\nRssAnon:\t1 kB\n", m));
  REQUIRE(parse_smaps_rollup("5573e26cb000-7fff6929e000 ---p 00000000 00:00 0   [rollup]\nRss: 1744 kB\nAnonymous:  200 kB\nSwap: 3 kB\n", m));
  CHECK(m.anon == 200 * 1024);
  CHECK(m.swap == 3 * 1024);
  CHECK(m.uid == 990);
}

TEST_CASE("a driver line is known by its two words") {
  CHECK(is_driver_no_memory_line("4,1,2,-;NVRM: nvAssertFailedNoLog: NV_ERR_NO_MEMORY (0x51) from _memdescAllocInternal"));
  CHECK_FALSE(is_driver_no_memory_line("NVRM: loading"));
  CHECK_FALSE(is_driver_no_memory_line("someone said NV_ERR_NO_MEMORY"));
}

TEST_CASE("the device's three useless answers, and the useful one") {
  const int64_t host = int64_t{127600748} * 1024;
  CHECK(judge_device_memory({}, host) == DeviceMemoryKind::none);
  CHECK(judge_device_memory({.present = true}, host) == DeviceMemoryKind::not_supported);
  CHECK(judge_device_memory({.present = true, .success = true, .total_bytes = host - (1 << 20)}, host) ==
        DeviceMemoryKind::whole_host);
  CHECK(judge_device_memory({.present = true, .success = true, .total_bytes = int64_t{8128} << 20, .integrated = true},
                            host) == DeviceMemoryKind::implausible);
  CHECK(judge_device_memory({.present = true, .success = true, .total_bytes = int64_t{141} << 30}, host) ==
        DeviceMemoryKind::discrete);
}

TEST_CASE("the probe reads a root of its own, file by file") {
  const Root root;
  CHECK_FALSE(HostProbe::open(root.path()).ok());
  root.write("proc/meminfo", "garbage");
  CHECK_FALSE(HostProbe::open(root.path()).ok());
  root.write("proc/meminfo", kMeminfo);
  root.write("proc/vmstat", "pswpin 1\n");
  auto probe = HostProbe::open(root.path());
  REQUIRE(probe.ok());
  HostReading reading;
  REQUIRE(probe->read(reading));
  CHECK(reading.memory.available == int64_t{54525952} * 1024);
  CHECK(reading.has_vmstat);
  CHECK_FALSE(reading.has_psi);
  root.write("proc/meminfo", "MemTotal: 100 kB\nMemFree: 5 kB\nMemAvailable: 50 kB\n");  // in place
  REQUIRE(probe->read(reading));
  CHECK(reading.memory.available == 50 * 1024);
  root.write("proc/meminfo", std::string(100'000, 'x'));  // larger than any real one
  CHECK_FALSE(probe->read(reading));
  CHECK(reading.memory.available == 50 * 1024);
}

TEST_CASE("the probe reads this host") {
  auto probe = HostProbe::open("");
  REQUIRE(probe.ok());
  HostReading reading;
  REQUIRE(probe->read(reading));
  CHECK(reading.memory.total > 0);
  CHECK(reading.has_vmstat);
}

TEST_CASE("a process tree has descendants, orphans of the group, and nobody else") {
  const Root root;
  root.process(100, 1, 100, 10, "engine");
  root.process(101, 100, 100, 1000, "EngineCore");
  root.process(50, 101, 50, 100, "older pid, younger process");
  root.process(102, 1, 100, 10'000, "orphan) S 999 1 1");
  root.process(200, 1, 200, 100'000, "neighbour");
  root.process(1, 0, 1, 1, "init");
  root.write("proc/300/stat", "300 (half");
  root.write("proc/self/stat", "300 (not a number)");
  const auto tree = read_process_tree(root.path(), 100);
  REQUIRE(tree.ok());
  CHECK(tree->processes.size() == 4);
  CHECK(tree->anon_bytes == (10 + 1000 + 100 + 10'000) * 1024);
  CHECK(tree->processes.front().stat.pid == 100);
  CHECK(tree->processes.front().memory.uid == 990);
  CHECK(read_process_tree(root.path(), 12345)->processes.empty());
  CHECK_FALSE(read_process_tree(root.path() + "/nowhere", 1).ok());
}

TEST_CASE("a process tree of this host holds this process and its memory") {
  const auto tree = read_process_tree("", ::getpid());
  REQUIRE(tree.ok());
  REQUIRE_FALSE(tree->processes.empty());
  CHECK(tree->processes.front().stat.pid == ::getpid());
  CHECK(tree->anon_bytes > 100 * 1024);
}

TEST_CASE("cgroup v2 files") {
  const Root root;
  CHECK_FALSE(read_cgroup(root.path(), "a").ok());
  root.write("sys/fs/cgroup/a/memory.current", "4096\n");
  root.write("sys/fs/cgroup/a/memory.max", "max\n");
  root.write("sys/fs/cgroup/a/memory.min", "100\n");
  root.write("sys/fs/cgroup/a/memory.events", "low 0\noom 9\noom_kill 2\n");
  root.write("sys/fs/cgroup/a/memory.stat", "anon 300\nanon_thp 7\nfile 400\n");
  const auto group = read_cgroup(root.path(), "a");
  REQUIRE(group.ok());
  CHECK(group->current == 4096);
  CHECK(group->max == -1);
  CHECK(group->min == 100);
  CHECK(group->oom_kills == 2);
  CHECK(group->anon == 300);
  CHECK(group->file == 400);
  root.write("sys/fs/cgroup/a/memory.max", "8192\n");
  CHECK(read_cgroup(root.path(), "a")->max == 8192);
  CHECK_FALSE(read_cgroup(root.path(), "a/../b").ok());
}

TEST_CASE("a trigger is written as the kernel wants it") {
  const Root root;
  CHECK_FALSE(arm_psi_trigger(root.path(), {}).ok());
  root.write("proc/pressure/memory", "");
  REQUIRE(arm_psi_trigger(root.path(), {.full = true, .stall_us = 100'000}).ok());
  std::ifstream file(root.path() + "/proc/pressure/memory", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  CHECK(text == std::string("full 100000 1000000\0", 20));
}

}  // namespace tandem::budget
