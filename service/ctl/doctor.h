// tandemctl doctor: checks of the host that Tandem is to run on, each with what was found, why it
// matters and how to mend it. A check is a pure function of the host's files and of what the
// configuration wants. It works without a running tandemd. Rules: docs/doctor.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "service/ctl/context.h"
#include "service/ctl/doctor_host.h"

namespace tandem::service::ctl {

// In the order of badness; the worst makes the exit code: up to note 0, warn 4, fail 5.
enum class Verdict : uint8_t { not_applicable, ok, note, warn, fail };
const char* verdict_name(Verdict verdict) noexcept;

struct Finding {
  std::string check;  // a name that stays, such as "swap"
  Verdict verdict = Verdict::ok;
  std::string found;  // what is, with the numbers
  std::string why;    // what it does to Tandem; empty when all is well
  std::string fix;    // what to do, a command where there is one
};

struct DiskSpace {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
  bool read_only = false;
};

// What the checks want to know beside the host's files.
struct DoctorWants {
  std::string state_dir;                 // empty: there is no configuration
  std::vector<std::string> model_files;  // configured
  int64_t connections = 4096;
  int64_t now_unix_s = 0;
  std::function<std::optional<DiskSpace>(const std::string& path)> disk;
};

using Check = Finding (*)(const HostFiles& host, const DoctorWants& wants);
std::vector<Check> memory_checks();   // doctor_memory.cpp
std::vector<Check> killer_checks();   // doctor_killers.cpp
std::vector<Check> system_checks();   // doctor_system.cpp

std::vector<Finding> examine(const HostFiles& host, const DoctorWants& wants);
Json findings_json(const std::vector<Finding>& findings);
std::string findings_text(const std::vector<Finding>& findings);
int findings_exit_code(const std::vector<Finding>& findings);

int run_doctor(const Context& context);

}  // namespace tandem::service::ctl
