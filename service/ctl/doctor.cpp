#include "service/ctl/doctor.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "service/config.h"

namespace tandem::service::ctl {
namespace {

std::optional<DiskSpace> disk_space(const std::string& path) {
  struct statvfs disk{};
  if (::statvfs(path.c_str(), &disk) != 0) return std::nullopt;
  return DiskSpace{.free_bytes = static_cast<int64_t>(disk.f_bavail * disk.f_frsize),
                   .total_bytes = static_cast<int64_t>(disk.f_blocks * disk.f_frsize),
                   .read_only = (disk.f_flag & ST_RDONLY) != 0};
}

Finding config_finding(const std::string& path, const Result<Config>& config) {
  if (config.ok()) return {"config", Verdict::ok, path, "", ""};
  if (config.error().code == Errc::io) {
    return {"config", Verdict::not_applicable, "no configuration at " + path, "",
            "name one with --config FILE to have its disks and models looked at"};
  }
  return {"config", Verdict::fail, config.error().message, "tandemd does not start",
          "tandemctl config check " + path};
}

}  // namespace

const char* verdict_name(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::not_applicable: return "not applicable";
    case Verdict::ok: return "ok";
    case Verdict::note: return "note";
    case Verdict::warn: return "warn";
    case Verdict::fail: return "fail";
  }
  return "?";
}

std::vector<Finding> examine(const HostFiles& host, const DoctorWants& wants) {
  std::vector<Finding> out;
  for (const auto& checks : {memory_checks(), killer_checks(), system_checks()}) {
    for (const Check check : checks) out.push_back(check(host, wants));
  }
  return out;
}

Json findings_json(const std::vector<Finding>& findings) {
  Json list = Json::array();
  Verdict worst = Verdict::not_applicable;
  for (const Finding& finding : findings) {
    worst = std::max(worst, finding.verdict);
    list.push_back(Json::object({{"check", finding.check},
                                 {"verdict", verdict_name(finding.verdict)},
                                 {"found", finding.found},
                                 {"why", finding.why},
                                 {"fix", finding.fix}}));
  }
  return Json::object({{"worst", verdict_name(worst)}, {"checks", std::move(list)}});
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::string out;
  const auto count = [&](Verdict verdict) {
    return std::to_string(std::count_if(findings.begin(), findings.end(),
                                        [&](const Finding& f) { return f.verdict == verdict; }));
  };
  const auto padded = [](std::string text, size_t width) {
    text.resize(std::max(text.size() + 1, width), ' ');
    return text;
  };
  for (const Finding& finding : findings) {
    out += padded(verdict_name(finding.verdict), 16) + padded(finding.check, 14) + finding.found + "\n";
    const std::string indent(30, ' ');
    if (!finding.why.empty()) out += indent + "Why: " + finding.why + ".\n";
    if (!finding.fix.empty()) out += indent + "Fix: " + finding.fix + ".\n";
  }
  return out + "\n" + count(Verdict::fail) + " failed, " + count(Verdict::warn) + " warnings, " +
         count(Verdict::note) + " notes, " + count(Verdict::ok) + " in order, " +
         count(Verdict::not_applicable) + " not applicable.\n";
}

int findings_exit_code(const std::vector<Finding>& findings) {
  int code = kDone;
  for (const Finding& finding : findings) {
    if (finding.verdict == Verdict::warn) code = std::max<int>(code, kWarned);
    if (finding.verdict == Verdict::fail) code = kFoundFailure;
  }
  return code;
}

int run_doctor(const Context& context) {
  const HostFiles host(context.arguments().flag("--root"));
  DoctorWants wants;
  wants.now_unix_s = SystemClock().unix_seconds();
  wants.disk = [&host](const std::string& path) { return disk_space(host.root() + path); };
  const auto config = load_config(context.config_path());
  if (config.ok()) {
    wants.state_dir = config->server.state_dir;
    wants.connections = config->limits.connections;
    wants.model_files.push_back(config->default_model.file);
    if (config->optional_model.has_value()) wants.model_files.push_back(config->optional_model->file);
  }
  std::vector<Finding> findings = examine(host, wants);
  findings.push_back(config_finding(context.config_path(), config));
  if (context.arguments().json) {
    print_json(findings_json(findings));
  } else {
    std::fputs(findings_text(findings).c_str(), stdout);
  }
  return findings_exit_code(findings);
}

}  // namespace tandem::service::ctl
