// Checks of the rest of the system: what else runs, core dumps, versions, disks, descriptors, the clock.
#include <algorithm>
#include <array>

#include "memory_budget/plan_box.h"
#include "service/ctl/doctor.h"

namespace tandem::service::ctl {
namespace {

using enum Verdict;
using budget::size_text;

constexpr int64_t kMiB = int64_t{1} << 20;

Finding check_headless(const HostFiles& host, const DoctorWants&) {
  std::string target = host.link("/etc/systemd/system/default.target");
  for (const char* folder : {"/usr/lib/systemd/system/", "/lib/systemd/system/"}) {
    if (target.empty()) target = host.link(std::string(folder) + "default.target");
  }
  target = target.substr(target.find_last_of('/') + 1);
  std::string desktop;
  for (const char* name : {"gnome-shell", "Xorg", "Xwayland", "kwin_wayland", "plasmashell", "gdm3", "sddm"}) {
    if (host.process(name).has_value()) desktop += (desktop.empty() ? "" : ", ") + std::string(name);
  }
  std::string found = target.empty() ? "the boot target is not known" : "boots to " + target;
  if (!desktop.empty()) found += "; running: " + desktop;
  if (!host.nvidia()) {
    return {"headless", not_applicable, found + "; no NVIDIA part: a desktop takes nothing from a pool", "", ""};
  }
  if (desktop.empty() && target != "graphical.target") return {"headless", ok, found, "", ""};
  return {"headless", warn, found,
          "a desktop and its browser take gigabytes of the pool that models share, and their GPU time",
          "systemctl set-default multi-user.target; systemctl isolate multi-user.target"};
}

Finding check_core_dumps(const HostFiles& host, const DoctorWants&) {
  const auto pattern = host.read("/proc/sys/kernel/core_pattern");
  if (!pattern.has_value()) return {"core_dumps", not_applicable, "core_pattern is not known", "", ""};
  const auto engine = host.process("tandem-engine");
  const auto limit = host.limit(engine.has_value() ? std::to_string(engine->pid) : "self",
                                "Max core file size");
  const std::string text = host.word("/proc/sys/kernel/core_pattern");
  const bool piped = text.starts_with('|');
  const bool zero = limit.has_value() && limit->soft == 0;
  std::string found = text.empty() ? "core_pattern is empty" : "core_pattern is \"" + text + "\"";
  if (limit.has_value()) found += limit->soft < 0 ? ", no limit" : ", limit " + size_text(limit->soft);
  // A program that is piped to sees the limit, but decides for itself.
  if (text.empty() || (zero && !piped)) return {"core_dumps", ok, found, "", ""};
  return {"core_dumps", zero ? note : warn, found,
          "a crash of an engine writes all its memory, up to 100 GiB, and the model waits for it",
          piped ? "Storage=none and ProcessSizeMax=0 in /etc/systemd/coredump.conf (or remove apport)"
                : "ulimit -c 0, or LimitCORE=0 in the units"};
}

struct KnownBad {
  std::string_view begins;
  std::string_view what;
};
// From public reports; the page docs/doctor.md says which.
constexpr auto kBadKernels = std::to_array<KnownBad>({
    {"7.0.0-1019", "loads fail in the driver's memory allocation (7 of 7 starts in one report)"},
});
constexpr auto kBadL4t = std::to_array<KnownBad>({
    {"R36.4.7", "allocations fail with NvMap error 12 while memory is free"},
});

Finding check_kernel(const HostFiles& host, const DoctorWants&) {
  const std::string release = host.word("/proc/sys/kernel/osrelease");
  std::string found = "kernel " + (release.empty() ? "not known" : release);
  if (!host.nvidia()) {
    return {"kernel", not_applicable, found + "; no NVIDIA part: no kernel is known to be bad", "", ""};
  }
  for (const KnownBad& bad : kBadKernels) {
    if (!release.starts_with(bad.begins)) continue;
    return {"kernel", fail, found, std::string(bad.what),
            "boot the kernel that was there before, and hold it: apt-mark hold linux-image-$(uname -r)"};
  }
  return {"kernel", ok, found, "", ""};
}

// "# R36 (release), REVISION: 4.7, ..." is "R36.4.7".
std::string l4t_release(const std::string& text) {
  const auto words = words_of(text);
  const auto revision = std::find(words.begin(), words.end(), "REVISION:");
  if (words.size() < 2 || revision == words.end() || revision + 1 == words.end()) return "";
  std::string out(words[1]);
  out += '.';
  out += *(revision + 1);
  while (out.ends_with(',')) out.pop_back();
  return out;
}

Finding check_driver(const HostFiles& host, const DoctorWants&) {
  if (!host.nvidia()) return {"driver", not_applicable, "no NVIDIA driver", "", ""};
  const std::string l4t = l4t_release(host.word("/etc/nv_tegra_release"));
  for (const KnownBad& bad : kBadL4t) {
    if (l4t != bad.begins) continue;
    return {"driver", warn, "Jetson Linux " + l4t, std::string(bad.what),
            "update Jetson Linux, or try each load before you rely on it"};
  }
  // "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build ..."
  std::string version;
  const std::string text = host.read("/proc/driver/nvidia/version").value_or("");
  for (const std::string_view word : words_of(text.substr(0, text.find('\n')))) {
    if (version.empty() && word.find('.') != std::string_view::npos && word[0] >= '0' && word[0] <= '9') {
      version = word;
    }
  }
  std::string found = l4t.empty() ? "" : "Jetson Linux " + l4t;
  if (!version.empty()) found += (found.empty() ? "driver " : ", driver ") + version;
  return {"driver", ok, found.empty() ? "an NVIDIA driver of unknown version" : found, "", ""};
}

// Kernel and driver that change by themselves overnight are how good boxes have turned bad.
Finding check_pins(const HostFiles& host, const DoctorWants&) {
  if (!host.nvidia()) return {"pins", not_applicable, "no NVIDIA part: updates may come", "", ""};
  const std::string unattended = host.read("/etc/apt/apt.conf.d/20auto-upgrades").value_or("");
  if (unattended.find("Unattended-Upgrade \"1\"") == std::string::npos) {
    return {"pins", ok, "packages are not upgraded unattended", "", ""};
  }
  const std::string kernel = host.word("/proc/sys/kernel/osrelease");
  const std::string blacklist = host.read("/etc/apt/apt.conf.d/50unattended-upgrades").value_or("");
  for (const std::string_view line : lines_of(blacklist)) {
    const auto words = words_of(line);
    if (!words.empty() && words[0].starts_with("\"linux-")) {
      return {"pins", ok, "unattended upgrades leave the kernel alone", "", ""};
    }
  }
  return {"pins", note, "unattended upgrades may replace kernel " + kernel + " and the driver",
          "a new kernel has made loads fail on boxes that were well the day before",
          "apt-mark hold the kernel and driver packages, or list \"linux-\" and \"nvidia-\" in "
          "Package-Blacklist of /etc/apt/apt.conf.d/50unattended-upgrades; then upgrade on purpose"};
}

Finding check_state_disk(const HostFiles&, const DoctorWants& wants) {
  if (wants.state_dir.empty()) {
    return {"state_disk", not_applicable, "there is no configuration that names state_dir", "", ""};
  }
  // It may not have been made yet.
  std::string path = wants.state_dir;
  auto space = wants.disk(path);
  while (!space.has_value() && path.find_last_of('/') != std::string::npos && path != "/") {
    path.resize(std::max<size_t>(path.find_last_of('/'), 1));
    space = wants.disk(path);
  }
  if (!space.has_value()) return {"state_disk", fail, wants.state_dir + " cannot be looked at", "", "make it"};
  Finding out{.check = "state_disk",
              .found = wants.state_dir + ": " + size_text(space->free_bytes) + " of " +
                       size_text(space->total_bytes) + " free" + (space->read_only ? ", read-only" : "")};
  if (space->read_only || space->free_bytes < 16 * kMiB) {
    out.verdict = fail;
    out.why = "keys cannot be changed, and records are lost once memory for them is full";
    out.fix = space->read_only ? "find out why the file system went read-only (dmesg), then remount it"
                               : "free disk space";
  } else if (space->free_bytes < 256 * kMiB) {
    out.verdict = warn;
    out.why = "it will be full soon";
    out.fix = "free disk space";
  }
  return out;
}

Finding check_models(const HostFiles& host, const DoctorWants& wants) {
  if (wants.model_files.empty()) {
    return {"models", not_applicable, "there is no configuration that names models", "", ""};
  }
  std::string missing;
  for (const std::string& file : wants.model_files) {
    if (!host.exists(file)) missing += (missing.empty() ? "" : ", ") + file;
  }
  if (!missing.empty()) {
    return {"models", fail, "not there: " + missing, "the model cannot be loaded",
            "correct model.*.file, or bring the file"};
  }
  const std::string& first = wants.model_files.front();
  const auto space = wants.disk(first.substr(0, std::max<size_t>(first.find_last_of('/'), 1)));
  std::string found = std::to_string(wants.model_files.size()) + " model files";
  if (space.has_value()) found += ", " + size_text(space->free_bytes) + " free on the disk of the first";
  return {"models", ok, found, "", ""};
}

Finding check_descriptors(const HostFiles& host, const DoctorWants& wants) {
  const auto daemon = host.process("tandemd");
  const auto limit = host.limit(daemon.has_value() ? std::to_string(daemon->pid) : "self", "Max open files");
  if (!limit.has_value()) return {"descriptors", not_applicable, "the limit is not known", "", ""};
  const int64_t wanted = wants.connections + 256;
  const auto text = [](int64_t value) { return value < 0 ? "any number" : std::to_string(value); };
  Finding out{.check = "descriptors",
              .found = text(limit->soft) + " open files, at most " + text(limit->hard) + " (of " +
                       (daemon.has_value() ? "tandemd" : "this shell") + "), " + std::to_string(wanted) +
                       " are wanted"};
  if (limit->hard < 0 || limit->hard >= wanted) return out;  // tandemd raises its own up to there
  out.verdict = warn;
  out.why = "limits.connections cannot be reached: clients are turned away before";
  out.fix = "LimitNOFILE=65536 in tandemd's unit, or a smaller limits.connections";
  return out;
}

Finding check_clock(const HostFiles& host, const DoctorWants& wants) {
  constexpr int64_t kAfter = 1'735'689'600;  // 2025-01-01: this was not written before
  if (wants.now_unix_s < kAfter) {
    return {"clock", fail, "the clock says " + std::to_string(wants.now_unix_s) + " s since 1970",
            "records, keys and stored responses get wrong ages, and TLS to others fails",
            "timedatectl set-ntp true"};
  }
  const bool synchronised = host.exists("/run/systemd/timesync/synchronized") ||
                            host.process("chronyd").has_value() || host.process("ntpd").has_value();
  if (synchronised) return {"clock", ok, "the clock is kept by a time service", "", ""};
  return {"clock", note, "no time service is known to keep the clock",
          "ages of records and stored responses drift with it", "timedatectl set-ntp true"};
}

}  // namespace

std::vector<Check> system_checks() {
  return {check_headless,   check_core_dumps, check_kernel,      check_driver, check_pins,
          check_state_disk, check_models,     check_descriptors, check_clock};
}

}  // namespace tandem::service::ctl
