#include "engine/run/continued_prompt.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace tandem::engine {
namespace {

constexpr std::string_view kSpace = " \t\r\n\v\f";

Error refusal(std::string message) {
  return make_error(Errc::invalid_argument, std::move(message), "messages");
}

Result<std::string_view> final_content(const Json& messages) {
  if (!messages.is_array() || messages.as_array().empty()) {
    return refusal("there is no message to continue");
  }
  const Json& last = messages.as_array().back();
  const Json* role = last.find("role");
  const Json* content = last.find("content");
  const Json* calls = last.find("tool_calls");
  if (role == nullptr || !role->is_string() || role->as_string() != "assistant") {
    return refusal("the message to continue is not the assistant's");
  }
  const bool has_calls = calls != nullptr && calls->is_array() && !calls->as_array().empty();
  if (content == nullptr || !content->is_string() || has_calls) {
    return refusal("the message to continue is not text alone");
  }
  return std::string_view(content->as_string());
}

}  // namespace

Result<void> continue_final_message(const Json& messages, RenderedPrompt& prompt) {
  TRY_ASSIGN(const std::string_view content, final_content(messages));
  const size_t begin = content.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return refusal("the message to continue is blank");
  const size_t end = content.find_last_not_of(kSpace) + 1;
  const std::string_view words = content.substr(begin, end - begin);
  // The last of the client's texts; the template's own words behind it may look the same.
  const size_t written = prompt.client_ranges.empty() ? 0 : prompt.client_ranges.back().end;
  const std::string_view before = std::string_view(prompt.text).substr(0, written);
  const size_t last = before.find_last_not_of(kSpace);
  const size_t stop = last == std::string_view::npos ? 0 : last + 1;
  const bool whole = prompt.client_ranges.size() > 0 && stop >= words.size() &&
                     stop - words.size() >= prompt.client_ranges.back().begin &&
                     before.substr(stop - words.size(), words.size()) == words;
  if (!whole) return refusal("the chat template does not end with the message to continue");
  prompt.text.resize(stop);
  prompt.text.append(content.substr(end));
  prompt.client_ranges.back().end = prompt.text.size();
  for (MessageEnd& message : prompt.message_ends) {
    message.offset = std::min(message.offset, prompt.text.size());
  }
  return {};
}

}  // namespace tandem::engine
