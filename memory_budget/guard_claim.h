// One guard a page: the guard holds a lock on the file of the control page for as long as it runs, and
// the kernel tells everybody who holds it. A record of a pid could be old; a lock ends with its holder.
//
// Any thread. The lock is of the process: a process that has claimed a page must not open and close its
// file again.
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace tandem::budget {

// Keep the descriptor open. Errors: io; exhausted, with the process that has it.
Result<Fd> claim_guard_page(const std::string& path);

// The process that has claimed the page; 0: none, or there is no page.
int32_t guard_of_page(const std::string& path);

}  // namespace tandem::budget
