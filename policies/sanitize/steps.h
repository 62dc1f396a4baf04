// The steps of the sanitizer in their order (sanitize.cpp). Each is a pure change of the draft,
// does nothing on a draft that it has seen before, and answers with a refusal where the client must
// be told. Inside of policies/sanitize only.
#pragma once

#include "policies/sanitize/draft.h"

namespace tandem::policies {

// sampling.cpp
Refusal check_parameters(Draft& draft);  // R27: null fields, types, ranges, top_p 0
void fill_sampling_row(Draft& draft);    // R26
void keep_engine_fields(Draft& draft);   // R27: names of this engine, fields it lacks

// message_shape.cpp
Refusal take_messages(Draft& draft);        // R1, R2: moves the messages into the turns
void move_thoughts(Draft& draft);           // R11
void drop_blank_messages(Draft& draft);     // R3
void drop_unwanted_thoughts(Draft& draft);  // R11, after the placement

// tool_history.cpp, tool_arguments.cpp
Refusal pair_tool_results(Draft& draft);  // R8
void shape_arguments(Draft& draft);       // R9
void write_tool_turns(Draft& draft);      // R8, where the template writes none

// placement.cpp
void place_system_messages(Draft& draft);   // R4, R5
Refusal ensure_user_message(Draft& draft);  // R6
void join_prefill(Draft& draft);            // R10
void merge_neighbours(Draft& draft);        // R7

// tools.cpp
Refusal check_tools(Draft& draft);             // R17, R19
void reduce_tool_schemas(Draft& draft);        // R18
void send_tools_through_prompt(Draft& draft);  // R18's last step

// limits.cpp
Refusal limit_tokens(Draft& draft);    // R29
Refusal decide_choices(Draft& draft);  // R30
Refusal account_usage(Draft& draft);   // R32

// structured.cpp
Refusal check_response_format(Draft& draft);  // R31

// reasoning.cpp
Refusal decide_thinking(Draft& draft);    // R20, R21, R10's and R31's off
void reserve_answer(Draft& draft);        // R22
Refusal keep_stop_strings(Draft& draft);  // R25

}  // namespace tandem::policies
