// Checks of the memory of the host: swap, huge pages, knobs of the kernel, limits of a container.
#include <algorithm>

#include "memory_budget/plan_box.h"
#include "service/ctl/doctor.h"

namespace tandem::service::ctl {
namespace {

using enum Verdict;
using budget::size_text;

constexpr int64_t kGiB = int64_t{1} << 30;

// U22 is about boxes whose pool the GPU shares; elsewhere the usual rules of a server hold.
constexpr const char* kNoPool = "no NVIDIA part: the rules for a unified pool do not apply";

Finding check_swap(const HostFiles& host, const DoctorWants&) {
  Finding out{.check = "swap"};
  const int64_t total = host.memory().swap_total;
  out.found = total == 0 ? "no swap" : "swap of " + size_text(total);
  if (!host.nvidia()) return {"swap", not_applicable, out.found + "; " + kNoPool, "", ""};
  const std::string add =
      "make a file of 8 to 16 GiB on NVMe: fallocate -l 8G /swapfile; chmod 600 /swapfile; "
      "mkswap /swapfile; swapon /swapfile; and a line in /etc/fstab";
  if (total == 0) {
    out.verdict = warn;
    out.why = "a short spike while a model loads kills something at once";
    out.fix = add;
  } else if (total < 7 * kGiB) {
    out.verdict = note;
    out.why = "8 to 16 GiB take a spike while a model loads; this is less";
    out.fix = add;
  } else if (total > 17 * kGiB) {
    out.verdict = note;
    out.why = "what is swapped out stalls answers for seconds; Tandem counts swap as nothing";
    out.fix = "8 to 16 GiB are enough";
  }
  return out;
}

bool persisted(const HostFiles& host, std::string_view key) {
  if (!keyed_value(host.read("/etc/sysctl.conf").value_or(""), key, '=').empty()) return true;
  for (const char* folder : {"/etc/sysctl.d/", "/usr/lib/sysctl.d/", "/run/sysctl.d/"}) {
    for (const std::string& name : host.names(folder)) {
      if (!name.ends_with(".conf")) continue;
      if (!keyed_value(host.read(folder + name).value_or(""), key, '=').empty()) return true;
    }
  }
  return false;
}

Finding check_swappiness(const HostFiles& host, const DoctorWants&) {
  Finding out{.check = "swappiness"};
  const auto value = host.number("/proc/sys/vm/swappiness");
  if (!value.has_value()) return {"swappiness", not_applicable, "vm.swappiness is not known", "", ""};
  out.found = "vm.swappiness is " + std::to_string(*value);
  if (!host.nvidia()) return {"swappiness", not_applicable, out.found + "; " + kNoPool, "", ""};
  out.fix = "echo vm.swappiness=1 > /etc/sysctl.d/90-tandem.conf; sysctl --system";
  if (*value > 1) {
    out.verdict = warn;
    out.why = "GPU memory cannot be swapped, so everything else is: pages of tandemd and of the engines";
  } else if (!persisted(host, "vm.swappiness")) {
    out.verdict = note;
    out.why = "no file of sysctl says so: it is lost at the next boot";
  } else {
    out.fix.clear();
  }
  return out;
}

Finding check_thp(const HostFiles& host, const DoctorWants&) {
  const std::string text = host.word("/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t begin = text.find('[');
  const size_t end = text.find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin) {
    return {"thp", not_applicable, "this kernel has no transparent huge pages", "", ""};
  }
  const std::string mode = text.substr(begin + 1, end - begin - 1);
  Finding out{.check = "thp", .found = "transparent huge pages: " + mode};
  if (mode == "madvise") return out;
  out.fix = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; at every boot with the kernel "
            "argument transparent_hugepage=madvise";
  out.verdict = mode == "never" ? warn : note;
  out.why = mode == "never" ? "weights that are loaded into memory cannot use huge pages"
                            : "every program on the host takes memory in steps of 2 MiB";
  return out;
}

Finding check_hugetlb(const HostFiles& host, const DoctorWants&) {
  const budget::Meminfo& m = host.memory();
  const int64_t bytes = m.hugepages_total * m.hugepage_bytes;
  if (bytes == 0) return {"hugetlb", ok, "no HugeTLB pool is reserved", "", ""};
  return {"hugetlb", bytes > m.total / 20 ? fail : warn,
          "a HugeTLB pool of " + size_text(bytes) + " is reserved",
          "it is lost to everything else, and software that follows NVIDIA's advice takes it for all "
          "the memory there is",
          "sysctl vm.nr_hugepages=0, and remove vm.nr_hugepages and hugepages= from sysctl files and the "
          "kernel's command line"};
}

Finding check_zram(const HostFiles& host, const DoctorWants&) {
  int64_t bytes = 0;
  for (const std::string& name : host.names("/sys/block")) {
    if (name.starts_with("zram")) bytes += host.number("/sys/block/" + name + "/disksize").value_or(0);
  }
  if (bytes == 0) return {"zram", ok, "no zram", "", ""};
  return {"zram", warn, "zram of " + size_text(bytes),
          "its store comes from the pool that it is to relieve, and killers that look at swap misread it",
          "systemctl disable --now zramswap systemd-zram-setup@zram0 nvzramconfig (whichever there is), "
          "and swap on NVMe instead"};
}

Finding check_watermarks(const HostFiles& host, const DoctorWants&) {
  const auto min_kib = host.number("/proc/sys/vm/min_free_kbytes");
  const int64_t boost = host.number("/proc/sys/vm/watermark_boost_factor").value_or(0);
  const int64_t scale = host.number("/proc/sys/vm/watermark_scale_factor").value_or(10);
  if (!min_kib.has_value()) return {"watermarks", not_applicable, "vm.min_free_kbytes is not known", "", ""};
  const int64_t bytes = *min_kib * 1024;
  Finding out{.check = "watermarks",
              .found = "vm.min_free_kbytes is " + size_text(bytes) + ", watermark_boost_factor " +
                       std::to_string(boost) + ", watermark_scale_factor " + std::to_string(scale)};
  const bool raised = bytes > std::max<int64_t>(host.memory().total / 100, kGiB / 4);
  if (!raised && scale <= 100 && boost <= 15000) return out;
  out.verdict = bytes > host.memory().total / 50 ? fail : warn;
  out.why = "what is kept free is not available: 4 GiB there cost 6 GiB of MemAvailable, and the boost "
            "can make it 15 GiB";
  out.fix = "remove the settings from sysctl files and boot, or set vm.min_free_kbytes to 65536, "
            "watermark_scale_factor to 10, watermark_boost_factor to 0";
  return out;
}

Finding check_overcommit(const HostFiles& host, const DoctorWants&) {
  const auto mode = host.number("/proc/sys/vm/overcommit_memory");
  if (!mode.has_value()) return {"overcommit", not_applicable, "vm.overcommit_memory is not known", "", ""};
  const std::string found = "vm.overcommit_memory is " + std::to_string(*mode);
  if (*mode != 2) return {"overcommit", ok, found, "", ""};
  return {"overcommit", warn, found,
          "address space that an engine maps counts as used, whether it is or not: loads are refused",
          "sysctl vm.overcommit_memory=0"};
}

Finding check_probes(const HostFiles& host, const DoctorWants&) {
  std::string missing;
  for (const char* path : {"/proc/pressure/memory", "/proc/buddyinfo", "/proc/vmstat"}) {
    if (!host.exists(path)) missing += (missing.empty() ? "" : ", ") + std::string(path);
  }
  if (host.memory().total == 0) missing += (missing.empty() ? "" : ", ") + std::string("/proc/meminfo");
  if (missing.empty()) return {"probes", ok, "the guard can read all that it wants to", "", ""};
  return {"probes", host.memory().total == 0 ? fail : warn, "missing: " + missing,
          "the guard has fewer second signals, and stops the optional model later than it could",
          "boot with psi=1; in a container let /proc of the host be seen"};
}

// The smallest limit on the way up, since a group is bound by all above it.
Finding check_container(const HostFiles& host, const DoctorWants&) {
  std::string path;
  const std::string groups = host.read("/proc/self/cgroup").value_or("");
  for (const std::string_view line : lines_of(groups)) {
    if (line.starts_with("0::")) path = line.substr(3);
  }
  int64_t limit = -1;
  while (true) {
    const auto group = budget::read_cgroup(host.root(), path);
    if (group.ok() && group->max >= 0) limit = limit < 0 ? group->max : std::min(limit, group->max);
    if (path.empty() || path == "/") break;
    path.resize(path.find_last_of('/'));
  }
  const bool container = host.exists("/.dockerenv") || host.exists("/run/.containerenv");
  Finding out{.check = "container", .found = container ? "in a container" : "not in a container"};
  if (limit >= 0 && limit < host.memory().total) {
    out.found += ", memory is limited to " + size_text(limit) + " of " + size_text(host.memory().total);
    out.verdict = warn;
    out.why = "the limit does not see GPU memory, but ends engines whose weights or KV are in host "
              "memory; the plan counts with the whole host";
    out.fix = "start the container without a limit (no --memory), or raise memory.max";
  } else if (container) {
    out.verdict = note;
    out.why = "the guard sees no process outside the container, and cannot stop one";
    out.fix = "run Tandem on the host, or the container with --pid=host";
  }
  return out;
}

}  // namespace

std::vector<Check> memory_checks() {
  return {check_swap,       check_swappiness, check_thp,    check_hugetlb,  check_zram,
          check_watermarks, check_overcommit, check_probes, check_container};
}

}  // namespace tandem::service::ctl
