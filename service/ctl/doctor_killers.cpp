// Checks of whatever kills processes when memory is short: tandem-guard and the order it relies on, and
// the others, which know nothing of it.
#include <algorithm>

#include "memory_budget/plan_box.h"
#include "service/ctl/doctor.h"

namespace tandem::service::ctl {
namespace {

using enum Verdict;

// The guard's red and black levels as shares of the host (U11), in percent.
constexpr double kRedPercent = 6.5;

std::string proc(const HostProcess& process, const char* file) {
  return "/proc/" + std::to_string(process.pid) + "/" + file;
}

std::optional<int64_t> oom_score(const HostFiles& host, const HostProcess& process) {
  return host.number(proc(process, "oom_score_adj"));
}

Finding check_guard(const HostFiles& host, const DoctorWants&) {
  const auto guard = host.process("tandem-guard");
  if (!guard.has_value()) {
    if (!host.process("tandemd").has_value()) {
      return {"guard", not_applicable, "Tandem does not run", "", ""};
    }
    return {"guard", fail, "tandemd runs, tandem-guard does not",
            "nothing stops a model when the host runs out of memory: boxes have hung for good",
            "look at tandemctl incidents and the guard's log; systemctl start tandem-guard where it is a "
            "unit"};
  }
  const std::string status = host.read(proc(*guard, "status")).value_or("");
  const auto words = words_of(keyed_value(status, "VmLck", ':'));
  const int64_t locked_kib = words.empty() ? 0 : parse_whole(words[0]).value_or(0);
  const int64_t score = oom_score(host, *guard).value_or(0);
  Finding out{.check = "guard",
              .found = "process " + std::to_string(guard->pid) + ", " + std::to_string(locked_kib) +
                       " KiB locked, oom_score_adj " + std::to_string(score)};
  if (locked_kib > 0 && score == -1000) return out;
  out.verdict = warn;
  out.why = locked_kib == 0 ? "its pages can be swapped out just when it is needed"
                            : "the kernel may kill it before the models";
  out.fix = "run it as root, or with CAP_IPC_LOCK and CAP_SYS_RESOURCE (LimitMEMLOCK=infinity, "
            "OOMScoreAdjust=-1000 in its unit)";
  return out;
}

Finding check_kill_order(const HostFiles& host, const DoctorWants&) {
  const auto daemon = host.process("tandemd");
  const auto engines = host.processes("tandem-engine");
  if (!daemon.has_value() || engines.empty()) {
    return {"kill_order", not_applicable, "Tandem does not run", "", ""};
  }
  const int64_t own = oom_score(host, *daemon).value_or(0);
  int64_t least = 1000;
  for (const HostProcess& engine : engines) {
    least = std::min(least, oom_score(host, engine).value_or(0));
  }
  const std::string found = "oom_score_adj: tandemd " + std::to_string(own) + ", engines from " +
                            std::to_string(least);
  if (own < least) return {"kill_order", ok, found, "", ""};
  return {"kill_order", warn, found,
          "the kernel's OOM killer may take tandemd or the host's services before a model",
          "OOMScoreAdjust=-900 in tandemd's unit; engines get theirs from tandemd when it may set it"};
}

// The value of "-m 10" or "-m10,5": its first number.
std::optional<int64_t> earlyoom_percent(const std::vector<std::string_view>& words, std::string_view flag) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with(flag)) continue;
    std::string_view value = words[i].substr(flag.size());
    if (value.empty() && i + 1 < words.size()) value = words[i + 1];
    return parse_whole(value.substr(0, value.find(',')));
  }
  return std::nullopt;
}

Finding check_earlyoom(const HostFiles& host, const DoctorWants&) {
  const auto process = host.process("earlyoom");
  if (!process.has_value()) return {"earlyoom", ok, "earlyoom does not run", "", ""};
  std::string line = host.read(proc(*process, "cmdline")).value_or("");
  std::replace(line.begin(), line.end(), '\0', ' ');
  const auto words = words_of(line);
  const int64_t memory = earlyoom_percent(words, "-m").value_or(10);
  const int64_t swap = earlyoom_percent(words, "-s").value_or(10);
  Finding out{.check = "earlyoom",
              .found = "earlyoom kills below " + std::to_string(memory) + " % of memory and " +
                       std::to_string(swap) + " % of swap"};
  // Without swap, or with a swap condition that always holds, memory alone decides.
  const bool memory_alone = swap >= 100 || host.memory().swap_total == 0;
  if (memory_alone && static_cast<double>(memory) >= kRedPercent) {
    out.verdict = fail;
    out.why = "it kills what is largest, the default model as well, before tandem-guard has shed the "
              "optional one";
    out.fix = "systemctl disable --now earlyoom, or -m 2,1 and --avoid '^tandem' in /etc/default/earlyoom";
  } else {
    out.verdict = note;
    out.why = memory_alone ? "it acts below the guard's levels: a second net"
                           : "it waits until swap is used up too, which is too late for a wedge";
    out.fix = "nothing, or systemctl disable --now earlyoom: tandem-guard does this here";
  }
  return out;
}

// "60%": 60. Its own default when the file does not say.
int64_t oomd_percent(const HostFiles& host, std::string_view key, int64_t otherwise) {
  int64_t out = otherwise;
  std::vector<std::string> files{"/etc/systemd/oomd.conf"};
  for (const std::string& name : host.names("/etc/systemd/oomd.conf.d")) {
    files.push_back("/etc/systemd/oomd.conf.d/" + name);
  }
  for (const std::string& file : files) {
    std::string value = keyed_value(host.read(file).value_or(""), key, '=');
    value.resize(std::min(value.find_first_of("%."), value.size()));
    out = parse_whole(value).value_or(out);
  }
  return out;
}

Finding check_oomd(const HostFiles& host, const DoctorWants&) {
  if (!host.process("systemd-oomd").has_value()) {
    return {"systemd_oomd", ok, "systemd-oomd does not run", "", ""};
  }
  const int64_t swap = oomd_percent(host, "SwapUsedLimit", 90);
  const int64_t pressure = oomd_percent(host, "DefaultMemoryPressureLimit", 60);
  Finding out{.check = "systemd_oomd",
              .verdict = note,
              .found = "systemd-oomd acts above " + std::to_string(swap) + " % of swap used and " +
                       std::to_string(pressure) + " % of pressure",
              .why = "it ranks by what a control group is charged, which GPU memory is not part of: it may "
                     "end a session or the wrong model, or come too late",
              .fix = "ManagedOOMSwap=auto and ManagedOOMMemoryPressure=auto for Tandem's units and -.slice, "
                     "or systemctl disable --now systemd-oomd"};
  if (swap < 80 || pressure < 50) out.verdict = warn;
  return out;
}

Finding check_watchdog(const HostFiles& host, const DoctorWants&) {
  if (!host.nvidia()) {
    return {"watchdog", not_applicable, "no NVIDIA part: wedges of its driver do not occur", "", ""};
  }
  if (host.exists("/dev/watchdog") || host.exists("/dev/watchdog0")) {
    return {"watchdog", ok, "there is a hardware watchdog", "", ""};
  }
  return {"watchdog", note, "there is no /dev/watchdog",
          "a box that wedges in the driver comes back only when its power is cut",
          "load the watchdog's module, or use a power plug that can be switched from afar"};
}

}  // namespace

std::vector<Check> killer_checks() {
  return {check_guard, check_kill_order, check_earlyoom, check_oomd, check_watchdog};
}

}  // namespace tandem::service::ctl
