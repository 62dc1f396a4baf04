// Cuts a rendered chat behind the content of its last message, so that the model goes on in the
// assistant's own words instead of beginning a turn. Marks and message ends are cut with it. Pure.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "engine/chat_template/chat_template.h"

namespace tandem::engine {

// `prompt` was rendered from `messages` without an opening of the next turn. White space at the end of
// the content that the template dropped is put back: the client wrote it.
// Errors: invalid_argument when the last message is no text of an assistant, or when the template does
// not write it as it is.
Result<void> continue_final_message(const Json& messages, RenderedPrompt& prompt);

}  // namespace tandem::engine
