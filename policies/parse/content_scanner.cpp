#include "policies/parse/content_scanner.h"

#include <algorithm>
#include <utility>

namespace tandem::policies {
std::vector<std::string_view> noise_markers(ToolSyntax syntax) {
  const std::string_view think_close = think_markers(syntax).close;
  switch (syntax) {
    case ToolSyntax::qwen_xml:
    case ToolSyntax::hermes:
      return {"</tool_call>", "</function>", "</parameter>", "<tool_response>", think_close};
    case ToolSyntax::gemma4:
      return {"<tool_call|>", "<|tool_response>", think_close};
    case ToolSyntax::llama3:
      return {"<|eom_id|>", "<|eot_id|>"};
    case ToolSyntax::mistral:
      return {think_close};
    case ToolSyntax::gpt_oss:
    case ToolSyntax::plain:
      break;
  }
  return {};
}

std::vector<std::string_view> call_openers(ToolSyntax syntax) {
  switch (syntax) {
    case ToolSyntax::qwen_xml:
    case ToolSyntax::hermes:
      return {"<tool_call>", kLineOpener};
    case ToolSyntax::gemma4:
      return {"<|tool_call>"};
    case ToolSyntax::llama3:
      return {"<|python_tag|>"};
    case ToolSyntax::mistral:
      return {"[TOOL_CALLS]"};
    case ToolSyntax::gpt_oss:
    case ToolSyntax::plain:
      break;
  }
  return {};
}

ThinkMarkers think_markers(ToolSyntax syntax) {
  switch (syntax) {
    case ToolSyntax::qwen_xml:
    case ToolSyntax::hermes:
      return {"<think>", "</think>"};
    case ToolSyntax::gemma4:
      return {"<|channel>thought", "<channel|>"};  // the newline behind it is trimmed
    case ToolSyntax::mistral:
      return {"[THINK]", "[/THINK]"};
    case ToolSyntax::llama3:
    case ToolSyntax::gpt_oss:
    case ToolSyntax::plain:
      break;
  }
  return {};
}

ContentScanner::ContentScanner(const ReaderContext& context, const ScannerOptions& options,
                               CallTarget& target)
    : context_(context),
      options_(options),
      target_(target),
      openers_(call_openers(context.syntax)),
      noise_(noise_markers(context.syntax)) {
  for (const std::string_view opener : openers_) first_bytes_.add(opener.front());
  if (options_.bare) {
    reader_ = bare_calls_reader(context_);
    bare_reader_ = true;
    state_ = State::call;
  }
}

void ContentScanner::feed(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (state_ != State::text) {
      push(text[at++]);
      continue;
    }
    const size_t end = first_bytes_.find_in(text, at);
    if (end > at) {
      target_.text(text.substr(at, end - at));
      line_start_ = text[end - 1] == '\n';
    }
    if (end < text.size()) push(text[end]);
    at = end + 1;
  }
}

void ContentScanner::push(char c) {
  step(c);
  while (!replay_.empty()) {
    const char again = replay_.back();
    replay_.pop_back();
    step(again);
  }
}

void ContentScanner::step(char c) {
  switch (state_) {
    case State::text:
      step_text(c);
      break;
    case State::marker:
      step_marker(c);
      break;
    case State::call:
      step_call(c);
      break;
    case State::behind:
      step_behind(c);
      break;
  }
}

void ContentScanner::step_text(char c) {
  if (first_bytes_.has(c)) {
    held_ = c;
    behind_ = false;
    state_ = State::marker;
    return;
  }
  target_.text({&c, 1});
  line_start_ = c == '\n';
}

void ContentScanner::step_behind(char c) {
  if (is_space_byte(c)) return;
  line_start_ = true;
  if (context_.syntax == ToolSyntax::llama3 && (c == ';' || c == '{')) {
    reader_ = json_call_reader(context_, !in_wrapper_);
    bare_reader_ = false;
    state_ = State::call;
    if (c == ';') {
      held_ = c;
    } else {
      step_call(c);
    }
    return;
  }
  held_ = c;
  behind_ = true;
  const bool noise = std::any_of(noise_.begin(), noise_.end(), [c](std::string_view word) {
    return !word.empty() && word.front() == c;
  });
  state_ = State::marker;
  if (!noise && !first_bytes_.has(c)) {
    state_ = State::text;
    emit_held(1);
  }
}

void ContentScanner::step_marker(char c) {
  held_.push_back(c);
  for (const std::string_view opener : openers_) {
    if (held_ != opener) continue;
    if (opener == kLineOpener && !line_start_) continue;
    start_reader(opener);
    return;
  }
  if (behind_) {
    for (const std::string_view word : noise_) {
      if (held_ != word) continue;
      if (word == "</tool_call>") in_wrapper_ = false;
      held_.clear();
      state_ = State::behind;
      return;
    }
  }
  if (begins_one_of(held_, openers_) && held_ != kLineOpener) return;
  if (behind_ && begins_one_of(held_, noise_)) return;
  // A marker's first byte stands nowhere else in it: only the new byte can start another one.
  state_ = State::text;
  replay_.push_back(c);
  emit_held(held_.size() - 1);
}

void ContentScanner::start_reader(std::string_view opener) {
  bare_reader_ = false;
  state_ = State::call;
  if (opener == kLineOpener) {
    reader_ = function_reader(context_, !(behind_ && in_wrapper_));
    return;
  }
  in_wrapper_ = true;
  switch (context_.syntax) {
    case ToolSyntax::gemma4:
      reader_ = gemma_call_reader(context_, false);
      break;
    case ToolSyntax::llama3:
      reader_ = json_call_reader(context_, false);
      break;
    case ToolSyntax::mistral:
      reader_ = mistral_call_reader(context_);
      break;
    case ToolSyntax::qwen_xml:
    case ToolSyntax::hermes:
    case ToolSyntax::gpt_oss:
    case ToolSyntax::plain:
      reader_ = wrapped_call_reader(context_);
      break;
  }
}

void ContentScanner::step_call(char c) {
  held_.push_back(c);
  const ReadStep step = reader_->step(held_);
  if (step != ReadStep::more) {
    decide(step);
    return;
  }
  if (held_.size() <= options_.held_bytes_max) return;
  if (!bare_reader_) target_.unparsed_call();
  state_ = State::text;
  emit_held(held_.size());
}

void ContentScanner::decide(ReadStep step) {
  const std::unique_ptr<CallReader> reader = std::move(reader_);
  replay_tail(reader->replay);
  switch (step) {
    case ReadStep::done:
      for (ReadCall& call : reader->calls) target_.call(std::move(call));
      held_.clear();
      if (bare_reader_) in_wrapper_ = false;
      state_ = State::behind;
      break;
    case ReadStep::unreadable:
      target_.unparsed_call();
      [[fallthrough]];
    case ReadStep::text:
    case ReadStep::more:
    case ReadStep::cut:
      state_ = State::text;
      emit_held(held_.size());
      break;
  }
}

void ContentScanner::emit_held(size_t bytes) {
  if (bytes > 0) {
    target_.text(std::string_view(held_).substr(0, bytes));
    line_start_ = held_[bytes - 1] == '\n';
    in_wrapper_ = false;
  }
  held_.clear();
}

void ContentScanner::replay_tail(size_t bytes) {
  replay_.append(held_.rbegin(), held_.rbegin() + static_cast<std::ptrdiff_t>(bytes));
  held_.resize(held_.size() - bytes);
}

void ContentScanner::finish(EngineFinish reason) {
  while (state_ == State::call) {
    const ReadStep step = reader_->finish(held_, reason);
    if (step == ReadStep::cut && reason == EngineFinish::length) {
      for (ReadCall& call : reader_->calls) target_.call(std::move(call));
      target_.truncated_call();
      held_.clear();
      return;
    }
    if (step == ReadStep::cut) target_.unparsed_call();
    decide(step);
    // What is read again may end in another call that is open.
    while (!replay_.empty()) {
      const char again = replay_.back();
      replay_.pop_back();
      this->step(again);
    }
  }
  if (state_ != State::marker) return;
  // A closer behind a call may be cut as well; text that could open a call is text.
  const bool closer = behind_ && held_.size() > 1 && !begins_one_of(held_, openers_);
  if (!closer) emit_held(held_.size());
  held_.clear();
  state_ = State::text;
}

}  // namespace tandem::policies
