// R4, R5, R6, R7 and R10: where messages may stand.
#include <algorithm>
#include <iterator>

#include "policies/sanitize/steps.h"

namespace tandem::policies {
namespace {

constexpr std::string_view kReminderOpen = "<system-reminder>\n";
constexpr std::string_view kReminderClose = "\n</system-reminder>";
constexpr std::string_view kBlankLine = "\n\n";
constexpr std::string_view kNeutralUserTurn = "Continue.";

// Only reached for messages whose parts were joined (R2), so a system message is one string.
std::string text_of(const Json& message) {
  const Json* content = message.find("content");
  return content != nullptr && content->is_string() ? content->as_string() : std::string();
}

std::string joined(const std::vector<Turn>& run) {
  std::string text;
  for (const Turn& turn : run) {
    if (!text.empty()) text += kBlankLine;
    text += text_of(turn.message);
  }
  return text;
}

std::string reminder(const std::vector<Turn>& run) {
  std::string text(kReminderOpen);
  text += joined(run);
  text += kReminderClose;
  return text;
}

enum class Side : uint8_t { front, behind };

std::string beside(std::string_view text, std::string_view added, Side side) {
  if (text.empty()) return std::string(added);
  std::string out(side == Side::front ? added : text);
  out += kBlankLine;
  out += side == Side::front ? text : added;
  return out;
}

bool is_text_part(const Json& part) {
  const Json* text = part.find("text");
  return text != nullptr && text->is_string();
}

void add_to_user(Json& message, const std::string& added, Side side) {
  Json* content = message.find("content");
  if (content == nullptr || !content->is_array()) {
    message.set("content", Json(beside(text_of(message), added, side)));
    return;
  }
  Json::Array& parts = content->as_array();
  Json* target = nullptr;
  if (side == Side::front) {
    const auto part = std::find_if(parts.begin(), parts.end(), is_text_part);
    if (part != parts.end()) target = &*part;
  } else {
    const auto part = std::find_if(parts.rbegin(), parts.rend(), is_text_part);
    if (part != parts.rend()) target = &*part;
  }
  if (target != nullptr) {
    Json& text = *target->find("text");
    text = Json(beside(text.as_string(), added, side));
    return;
  }
  Json part = Json::object({{"type", Json("text")}, {"text", Json(added)}});
  parts.insert(side == Side::front ? parts.begin() : parts.end(), std::move(part));
}

// A system message between a call and the last result of its round moves behind that result.
void leave_rounds(std::vector<Turn>& turns) {
  for (size_t i = 0; i < turns.size(); ++i) {
    if (!has_role(turns[i], "assistant") || !has_calls(turns[i].message)) continue;
    size_t last_result = i;
    size_t end = i + 1;
    for (;
         end < turns.size() && !has_role(turns[end], "user") && !has_role(turns[end], "assistant");
         ++end) {
      if (has_role(turns[end], "tool")) last_result = end;
    }
    std::vector<Turn> late;
    size_t to = i + 1;
    for (size_t from = i + 1; from <= last_result; ++from) {
      if (has_role(turns[from], "tool")) {
        if (to != from) turns[to] = std::move(turns[from]);
        ++to;
      } else {
        late.push_back(std::move(turns[from]));
      }
    }
    std::move(late.begin(), late.end(), turns.begin() + static_cast<ptrdiff_t>(to));
    i = end - 1;
  }
}

std::vector<Turn> take_run(std::vector<Turn>& turns, size_t& at) {
  std::vector<Turn> run;
  for (; at < turns.size() && has_role(turns[at], "system"); ++at) {
    run.push_back(std::move(turns[at]));
  }
  return run;
}

void fold_run(const std::vector<Turn>& run, std::vector<Turn>& out, Turn* next) {
  const std::string text = reminder(run);
  if (next != nullptr && has_role(*next, "user")) {
    add_to_user(next->message, text, Side::front);
  } else if (!out.empty() && has_role(out.back(), "user")) {
    add_to_user(out.back().message, text, Side::behind);
  } else {
    out.push_back(
        {Json::object({{"role", Json("user")}, {"content", Json(text)}}), run.front().origin});
  }
}

// A user message that only wraps tool responses is none for Qwen's template.
bool is_user_query(const Turn& turn) {
  if (!has_role(turn, "user")) return false;
  const Json* content = turn.message.find("content");
  if (content == nullptr || !content->is_string()) return true;
  const std::string_view text = trim(content->as_string());
  constexpr std::string_view kOpen = "<tool_response>";
  constexpr std::string_view kClose = "</tool_response>";
  return text.size() < kOpen.size() + kClose.size() || text.substr(0, kOpen.size()) != kOpen ||
         text.substr(text.size() - kClose.size()) != kClose;
}

bool is_plain_assistant(const Turn& turn) {
  return has_role(turn, "assistant") && !has_calls(turn.message);
}

Json::Array as_parts(Json content) {
  if (content.is_array()) return std::move(content.as_array());
  return {Json::object({{"type", Json("text")}, {"text", std::move(content)}})};
}

// The content of turns[first, end) as one, in one pass: strings up to the first list of parts join,
// everything behind it is a part.
Json joined_content(std::vector<Turn>& turns, size_t first, size_t end,
                    std::string_view separator) {
  std::string text;
  size_t at = first;
  for (; at < end; ++at) {
    const Json& content = *turns[at].message.find("content");
    if (!content.is_string()) break;
    if (!text.empty() && !content.as_string().empty()) text += separator;
    text += content.as_string();
  }
  if (at == end) return Json(std::move(text));
  Json::Array parts;
  if (at > first) parts = as_parts(Json(std::move(text)));
  for (; at < end; ++at) {
    Json::Array more = as_parts(std::move(*turns[at].message.find("content")));
    std::move(more.begin(), more.end(), std::back_inserter(parts));
  }
  return Json(std::move(parts));
}

bool has_content(const Turn& turn) {
  const Json* content = turn.message.find("content");
  return content != nullptr && (content->is_string() || content->is_array());
}

bool mergeable(const Turn& first, const Turn& next) {
  return has_content(first) && has_content(next) &&
         ((has_role(next, "user") && has_role(first, "user")) ||
          (is_plain_assistant(next) && is_plain_assistant(first)));
}

}  // namespace

void place_system_messages(Draft& draft) {
  const SystemPlacement accepted = draft.profile.system;
  if (!draft.on(4) || accepted == SystemPlacement::any) return;
  std::vector<Turn>& turns = draft.turns;
  const auto late = [](const Turn& turn) { return has_role(turn, "system"); };
  const ptrdiff_t allowed = accepted == SystemPlacement::leading && !turns.empty() ? 1 : 0;
  if (std::none_of(turns.begin() + allowed, turns.end(), late)) return;
  leave_rounds(turns);
  std::vector<Turn> out;
  out.reserve(turns.size());
  size_t at = 0;
  if (accepted == SystemPlacement::leading) {
    std::vector<Turn> lead = take_run(turns, at);
    if (!lead.empty()) {
      if (lead.size() > 1) {
        lead.front().message.set("content", Json(joined(lead)));
        draft.note(4, "messages", "leading system messages merged");
      }
      out.push_back(std::move(lead.front()));
    }
  }
  while (at < turns.size()) {
    const std::vector<Turn> run = take_run(turns, at);
    if (!run.empty()) {
      fold_run(run, out, at < turns.size() ? &turns[at] : nullptr);
      draft.note(4, "messages", "late system message folded in place");
    }
    if (at < turns.size()) out.push_back(std::move(turns[at++]));
  }
  turns = std::move(out);
}

Refusal ensure_user_message(Draft& draft) {
  if (draft.turns.empty()) return refuse(6, "messages", "no message with content is left");
  if (!draft.on(6) || !draft.profile.needs_user) return std::nullopt;
  if (std::any_of(draft.turns.begin(), draft.turns.end(), is_user_query)) return std::nullopt;
  const bool led = has_role(draft.turns.front(), "system");
  if (led && draft.turns.size() == 1) {
    draft.turns.front().message.set("role", Json("user"));
    draft.note(6, "messages", "the only system message became the user message");
    return std::nullopt;
  }
  Turn turn{Json::object({{"role", Json("user")}, {"content", Json(kNeutralUserTurn)}}), 0};
  draft.turns.insert(draft.turns.begin() + (led ? 1 : 0), std::move(turn));
  draft.note(6, "messages", "a neutral user message was added");
  return std::nullopt;
}

void join_prefill(Draft& draft) {
  std::vector<Turn>& turns = draft.turns;
  if (!draft.on(10) || turns.empty() || !is_plain_assistant(turns.back())) return;
  size_t first = turns.size() - 1;
  if (has_content(turns.back())) {
    while (first > 0 && is_plain_assistant(turns[first - 1]) && has_content(turns[first - 1])) --first;
  }
  if (first + 1 < turns.size()) {
    turns[first].message.set("content", joined_content(turns, first, turns.size(), ""));
    turns.erase(turns.begin() + static_cast<ptrdiff_t>(first) + 1, turns.end());
    draft.note(10, "messages", "the parts of a prefill were joined");
  }
  draft.result.prefill = true;
  if (draft.target.engine == EngineKind::vllm) {
    draft.set(10, "continue_final_message", Json(true), "the last message is continued");
    draft.set(10, "add_generation_prompt", Json(false), "the last message is continued");
  }
}

void merge_neighbours(Draft& draft) {
  if (!draft.on(7) || !draft.profile.alternates) return;
  std::vector<Turn>& turns = draft.turns;
  std::vector<Turn> out;
  out.reserve(turns.size());
  for (size_t first = 0; first < turns.size();) {
    size_t end = first + 1;
    while (end < turns.size() && mergeable(turns[first], turns[end])) ++end;
    if (end > first + 1) {
      turns[first].message.set("content", joined_content(turns, first, end, kBlankLine));
      draft.note(7, "messages", "neighbours of one role merged");
    }
    out.push_back(std::move(turns[first]));
    first = end;
  }
  turns = std::move(out);
}

}  // namespace tandem::policies
