// tandemctl budget show, set, undo, history. A change is planned and shown first; then tandemd makes it
// as a job, which is followed to its end.
#pragma once

#include <span>

#include "service/ctl/context.h"

namespace tandem::service::ctl {

std::span<const FlagSpec> budget_set_flags();
std::span<const FlagSpec> budget_undo_flags();

int run_budget_show(const Context& context);
int run_budget_set(const Context& context);
int run_budget_undo(const Context& context);
int run_budget_history(const Context& context);

}  // namespace tandem::service::ctl
