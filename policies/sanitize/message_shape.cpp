// R1, R2, R3 and R11: what a single message looks like.
#include <array>
#include <cstring>

#include "policies/sanitize/steps.h"

namespace tandem::policies {
namespace {

constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
constexpr std::string_view kTextTypes[] = {"text", "input_text", "output_text"};

template <size_t kCount>
bool one_of(std::string_view word, const std::string_view (&words)[kCount]) {
  for (std::string_view known : words) {
    if (known == word) return true;
  }
  return false;
}

// Checks the parts of one message; joins them into `text` when all of them are text.
Refusal read_parts(const Json& message, size_t index, bool& all_text, std::string& text) {
  const Json::Array& parts = message.find("content")->as_array();
  for (size_t part = 0; part < parts.size(); ++part) {
    const std::string path = index_path("messages", index, index_path("content", part, "type"));
    const Json* type = parts[part].find("type");
    if (type == nullptr || !type->is_string()) return refuse(2, path, "a part needs a type");
    if (type->as_string() == "image_url") {
      if (role_of(message) == "system" || role_of(message) == "developer") {
        return refuse(2, index_path("messages", index, "content"),
                      "a system message cannot hold an image");
      }
      all_text = false;
      continue;
    }
    if (!one_of(type->as_string(), kTextTypes)) {
      return refuse(2, path, "parts of type " + type->as_string() + " are not supported");
    }
    const Json* words = parts[part].find("text");
    if (words == nullptr || !words->is_string()) {
      return refuse(2, index_path("messages", index, index_path("content", part, "text")),
                    "a text part needs a text");
    }
    if (part > 0) text += '\n';
    text += words->as_string();
  }
  return std::nullopt;
}

// R2: text-only parts become one string; R1: developer is system.
Refusal shape_message(Draft& draft, Json& message, size_t index) {
  if (!message.is_object()) {
    return refuse(1, index_path("messages", index, ""), "a message must be an object");
  }
  Json* role = message.find("role");
  if (role == nullptr || !role->is_string() || !one_of(role->as_string(), kRoles)) {
    return refuse(1, index_path("messages", index, "role"),
                  "the role must be system, developer, user, assistant or tool");
  }
  Json* content = message.find("content");
  if (content != nullptr && content->is_array()) {
    bool all_text = true;
    std::string text;
    if (Refusal refusal = read_parts(message, index, all_text, text)) return refusal;
    if (all_text && draft.on(2)) {
      *content = Json(std::move(text));
      draft.note(2, "messages", "text parts joined");
    }
  } else if (content != nullptr && !content->is_null() && !content->is_string()) {
    return refuse(2, index_path("messages", index, "content"),
                  "the content must be a string or a list of parts");
  }
  if (role->as_string() == "developer" && draft.on(1)) {
    *role = Json("system");
    draft.note(1, "messages", "developer renamed to system");
  }
  return std::nullopt;
}

struct Markers {
  std::string_view open;
  std::string_view close;
};

// Every family's marks: a chat may have been begun with another model.
constexpr std::array<Markers, 4> kThoughtMarkers{{
    {"<think>", "</think>"},
    {"<|channel>thought", "<channel|>"},
    {"[THINK]", "[/THINK]"},
    {"<|channel|>analysis<|message|>", "<|end|>"},
}};
constexpr std::string_view kFinalHeaders[] = {"<|start|>assistant", "<|channel|>final<|message|>"};

bool skip_prefix(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Takes one block, or a closer that was left behind, off the front. Unclosed: all of it is thought.
bool take_block(std::string_view& rest, std::string& thought) {
  const std::string_view body = trim(rest);
  for (const Markers& markers : kThoughtMarkers) {
    std::string_view inside = body;
    if (skip_prefix(inside, markers.open)) {
      const size_t end = inside.find(markers.close);
      const std::string_view words = trim(inside.substr(0, end));
      if (!thought.empty() && !words.empty()) thought += '\n';
      thought += words;
      rest = end == std::string_view::npos ? std::string_view()
                                           : inside.substr(end + markers.close.size());
      if (markers.close == "<|end|>") {
        for (std::string_view header : kFinalHeaders) skip_prefix(rest, header);
      }
      return true;
    }
    if (markers.close != "<|end|>" && skip_prefix(inside, markers.close)) {
      rest = inside;
      return true;
    }
  }
  return false;
}

// Front ends store thoughts as <details type="reasoning"> blocks; those never reach a model.
bool remove_details(std::string& text) {
  constexpr std::string_view kOpen = "<details type=\"reasoning\"";
  constexpr std::string_view kClose = "</details>";
  if (text.find(kOpen) == std::string::npos) return false;
  bool removed = false;
  std::string kept;  // one pass; what stands around a removed block may be the opening of another
  for (size_t at = 0; at < text.size();) {
    kept += text[at++];
    if (!kept.ends_with(kOpen)) continue;
    const size_t end = text.find(kClose, at);
    if (end == std::string::npos) {
      kept.append(text, at);
      break;
    }
    kept.resize(kept.size() - kOpen.size());
    at = end + kClose.size();
    removed = true;
  }
  if (removed) text = std::string(trim(kept));
  return removed;
}

const char* thought_field(EngineKind engine) {
  return engine == EngineKind::vllm || engine == EngineKind::ollama ? "reasoning"
                                                                    : "reasoning_content";
}

std::string take_field(Json& message, std::string_view field) {
  const Json* value = message.find(field);
  std::string text = value != nullptr && value->is_string() ? value->as_string() : std::string();
  message.erase(field);
  return std::string(trim(text));
}

bool is_trimmed(std::string_view text) { return !text.empty() && trim(text).size() == text.size(); }

// One assistant message: thoughts out of the content, and into the one field that is read.
bool move_thought(Json& message, std::string_view field) {
  std::string split;
  bool changed = false;
  if (Json* content = message.find("content"); content != nullptr && content->is_string()) {
    std::string text = content->as_string();
    changed = remove_details(text);
    std::string_view rest = text;
    bool found = false;
    while (take_block(rest, split)) found = true;
    if (found) text = std::string(trim(rest));
    changed = changed || found;
    if (changed) *content = Json(std::move(text));
  }
  const std::string_view other = field == "reasoning" ? "reasoning_content" : "reasoning";
  const Json* present = message.find(field);
  const bool in_place = present == nullptr || (present->is_string() && is_trimmed(present->as_string()));
  if (split.empty() && message.find(other) == nullptr && in_place) return changed;
  std::string thought = take_field(message, field);
  const std::string second = take_field(message, other);
  if (thought.empty()) thought = second;
  if (thought.empty()) {
    thought = split;
  } else if (!split.empty() && split != thought) {
    thought += '\n';
    thought += split;
  }
  if (!thought.empty()) message.set(field, Json(std::move(thought)));
  return true;
}

}  // namespace

Refusal take_messages(Draft& draft) {
  Json* messages = draft.request.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->as_array().empty()) {
    return refuse(6, "messages", "messages must be a list with at least one message");
  }
  Json::Array& list = messages->as_array();
  draft.turns.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    if (Refusal refusal = shape_message(draft, list[i], i)) return refusal;
    draft.turns.push_back({std::move(list[i]), i});
  }
  return std::nullopt;
}

void move_thoughts(Draft& draft) {
  if (!draft.on(11)) return;
  const char* field = thought_field(draft.target.engine);
  for (Turn& turn : draft.turns) {
    if (has_role(turn, "assistant") && move_thought(turn.message, field)) {
      draft.note(11, "messages", "earlier thoughts moved out of the content");
    }
  }
}

void drop_blank_messages(Draft& draft) {
  if (!draft.on(3)) return;
  std::vector<Turn> kept;
  kept.reserve(draft.turns.size());
  for (Turn& turn : draft.turns) {
    const std::string& role = role_of(turn.message);
    const bool blank = is_blank_content(turn.message);
    if (role == "assistant" && !has_calls(turn.message)) {
      if (turn.message.erase("tool_calls"))
        draft.note(3, "messages", "empty list of calls dropped");
    }
    if (blank && (role == "system" || (role == "assistant" && !has_calls(turn.message)))) {
      draft.note(3, "messages", "blank message dropped");
      continue;
    }
    const Json* content = turn.message.find("content");
    if (role != "system" && (content == nullptr || content->is_null())) {
      turn.message.set("content", Json(""));
      draft.note(3, "messages", "null content became an empty string");
    }
    kept.push_back(std::move(turn));
  }
  draft.turns = std::move(kept);
}

void drop_unwanted_thoughts(Draft& draft) {
  if (!draft.on(11) || draft.profile.history_thoughts == HistoryThoughts::keep) return;
  const char* field = thought_field(draft.target.engine);
  bool after_last_user = true;
  for (size_t i = draft.turns.size(); i > 0; --i) {
    Turn& turn = draft.turns[i - 1];
    if (has_role(turn, "user")) after_last_user = false;
    const bool wanted = draft.profile.history_thoughts == HistoryThoughts::on_open_call_turns &&
                        after_last_user && has_calls(turn.message);
    if (!wanted && has_role(turn, "assistant") && turn.message.erase(field)) {
      draft.note(11, "messages", "thoughts dropped that this family does not take");
    }
  }
}

}  // namespace tandem::policies
