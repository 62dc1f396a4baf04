// The file of the control page (memory_budget/guard_page.h): created once, mapped by tandemd and by
// tandem-guard, never replaced while mapped. Whoever comes first gives it its size and its name.
//
// Any thread. Errors: io, with the path; corrupt when the file is no control page of this version.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "memory_budget/guard_page.h"

namespace tandem::budget {

struct UnmapGuardPage {
  void operator()(GuardPage* page) const noexcept;
};
using GuardPageMapping = std::unique_ptr<GuardPage, UnmapGuardPage>;

// `root` is that of /proc, in tests. A page of another boot of the kernel is emptied: its pids, start
// times and clock would name other processes and a time to come.
Result<GuardPageMapping> map_guard_page(const std::string& path, const std::string& root = "");

// Within the directory of sockets and engine files.
std::string guard_page_path(const std::string& run_dir);

}  // namespace tandem::budget
