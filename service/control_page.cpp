#include "service/control_page.h"

#include "service/process.h"

namespace tandem::service {
namespace {

// The writer may be at it just now; it is at it for nanoseconds.
constexpr int kReadTries = 100;

}  // namespace

Result<std::unique_ptr<ControlPage>> ControlPage::open(const std::string& run_dir) {
  TRY_ASSIGN(budget::GuardPageMapping page, budget::map_guard_page(budget::guard_page_path(run_dir)));
  std::unique_ptr<ControlPage> control(new ControlPage(std::move(page)));
  control->page_->default_model.write({});
  control->page_->optional_model.write({});
  control->set_canary_loss(0);
  return control;
}

void ControlPage::set_tenant(budget::Role role, int64_t pid, bool loading) {
  budget::GuardTenant& written = written_[budget::role_index(role)];
  budget::GuardTenant tenant;
  if (pid > 0 && pid == written.pid) {
    tenant = written;
    tenant.loading = loading ? 1 : 0;
  } else if (pid > 0) {
    const auto ticks = process_start_ticks(static_cast<pid_t>(pid));
    const auto uid = process_uid(static_cast<pid_t>(pid));
    if (ticks.ok() && uid.ok()) {
      tenant = {.pid = static_cast<int32_t>(pid),
                .uid = *uid,
                .start_ticks = *ticks,
                .loading = loading ? uint32_t{1} : uint32_t{0}};
    }
  }
  if (tenant.pid == written.pid && tenant.start_ticks == written.start_ticks &&
      tenant.loading == written.loading) {
    return;
  }
  written = tenant;
  page_->tenant(role).write(tenant);
}

std::optional<budget::GuardReport> ControlPage::report(int64_t now_ms, int64_t fresh_ms) const {
  budget::GuardReport report;
  bool read = false;
  for (int i = 0; i < kReadTries && !read; ++i) read = page_->report.read(report);
  if (!read || report.sampled_ms == 0 || now_ms - report.sampled_ms > fresh_ms) return std::nullopt;
  return report;
}

}  // namespace tandem::service
