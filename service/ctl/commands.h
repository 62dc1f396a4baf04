// The commands of tandemctl but chat: one function each; it prints and returns the exit code.
#pragma once

#include "service/ctl/context.h"

namespace tandem::service::ctl {

int run_status(const Context& context);
int run_shutdown(const Context& context);
int run_model_list(const Context& context);
int run_model_show(const Context& context);
int run_model_change(const Context& context, const std::string& command);
int run_key_add(const Context& context);
int run_key_list(const Context& context);
int run_key_revoke(const Context& context);
int run_config_check(const Context& context);
int run_config_show(const Context& context);
int run_config_default(const Context& context);

int run_chat(const Context& context);  // chat.cpp
int run_plan(const Context& context);  // plan.cpp

}  // namespace tandem::service::ctl
