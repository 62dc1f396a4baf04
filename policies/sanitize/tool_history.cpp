// R8: calls and their results, paired inside their round.
#include <algorithm>

#include "policies/sanitize/steps.h"

namespace tandem::policies {
namespace {

constexpr std::string_view kNoResult = "[no result: the tool call was not completed]";
constexpr size_t kMistralIdLength = 9;
constexpr size_t kCallsOfMessageMax = 1024;  // each id is compared with every other

std::string text_or_number(const Json* value) {
  if (value == nullptr) return {};
  if (value->is_string()) return value->as_string();
  return value->is_number() ? value->dump() : std::string();
}

bool is_nine_characters(std::string_view id) {
  return id.size() == kMistralIdLength && std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
         });
}

// The same id always gives the same nine characters (FNV-1a, written in base 62).
std::string nine_characters(std::string_view id) {
  if (is_nine_characters(id)) return std::string(id);
  constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  uint64_t hash = 14695981039346656037ULL;
  for (char c : id) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 1099511628211ULL;
  }
  std::string out(kMistralIdLength, '0');
  for (char& digit : out) {
    digit = kDigits[hash % kDigits.size()];
    hash /= kDigits.size();
  }
  return out;
}

struct Call {
  Json json;
  std::string id;  // as the client wrote them; either may be empty
  std::string call_id;
  std::string sent_id;
  bool named = false;
  bool answered = false;
};

// An assistant message with calls, and what follows up to the next user or assistant message.
struct Round {
  Turn head;
  std::vector<Call> calls;
  struct Item {
    Turn turn;
    size_t call = 0;  // of a result
    bool is_result = false;
  };
  std::vector<Item> items;
  bool at_end = false;  // nothing stands behind the round
  size_t number = 0;
};

// A name that carries a control marker was copied from a raw header; only what stands before is it.
bool clean_name(Draft& draft, Json& call) {
  Json* function = call.find("function");
  Json* name = function == nullptr ? nullptr : function->find("name");
  if (name == nullptr || !name->is_string()) return false;
  const size_t marker = name->as_string().find("<|");
  if (marker != std::string::npos) {
    *name = Json(name->as_string().substr(0, marker));
    draft.note(8, "messages", "control marker cut from a tool name");
  }
  return !is_blank(name->as_string());
}

bool id_taken(const Round& round, std::string_view id, size_t before) {
  for (size_t i = 0; i < before; ++i) {
    if (round.calls[i].sent_id == id) return true;
  }
  return false;
}

std::string fresh_id(const Round& round, size_t index) {
  std::string id = "call_" + std::to_string(round.number) + "_" + std::to_string(index);
  const auto clashes = [&](const Call& call) {
    return call.id == id || call.call_id == id || call.sent_id == id;
  };
  while (std::any_of(round.calls.begin(), round.calls.end(), clashes)) id += 'x';
  return id;
}

void read_calls(Draft& draft, Round& round) {
  for (Json& json : round.head.message.find("tool_calls")->as_array()) {
    Call call;
    call.named = json.is_object() && clean_name(draft, json);
    call.id = text_or_number(json.find("id"));
    call.call_id = text_or_number(json.find("call_id"));
    call.json = std::move(json);
    round.calls.push_back(std::move(call));
  }
  for (size_t i = 0; i < round.calls.size(); ++i) {
    Call& call = round.calls[i];
    call.sent_id = call.id.empty() ? call.call_id : call.id;
    if (draft.profile.nine_character_ids && !call.sent_id.empty()) {
      call.sent_id = nine_characters(call.sent_id);
    }
    if (call.sent_id.empty() || id_taken(round, call.sent_id, i)) {
      call.sent_id = fresh_id(round, i);
      if (draft.profile.nine_character_ids) call.sent_id = nine_characters(call.sent_id);
    }
    if (!call.named) continue;
    if (call.json.erase("call_id") || call.sent_id != call.id) {
      draft.note(8, "messages", "id of a tool call set");
    }
    const Json* present = call.json.find("id");
    if (present == nullptr || !present->is_string() || present->as_string() != call.sent_id) {
      call.json.set("id", Json(call.sent_id));
    }
  }
}

void drop_orphan(Draft& draft, const Turn& turn) {
  draft.note(8, "messages", "a tool message without a call was dropped");
  draft.warn(8, "orphan_tool_message",
             index_path("messages", turn.origin, "") + " answers no open call");
}

// Finds the open call that a result belongs to. calls.size(): none, the result is an orphan.
Refusal match_result(const Round& round, const Turn& result, size_t& call) {
  const std::string id = text_or_number(result.message.find("tool_call_id"));
  call = round.calls.size();
  size_t open = 0;
  for (size_t i = 0; i < round.calls.size(); ++i) {
    if (round.calls[i].answered) continue;
    ++open;
    const bool fits = id.empty() || round.calls[i].id == id || round.calls[i].call_id == id;
    if (fits && call == round.calls.size()) call = i;
  }
  if (id.empty() && open > 1) {
    return refuse(
        8, index_path("messages", result.origin, "tool_call_id"),
        "a result without an id cannot be matched: " + std::to_string(open) + " calls are open");
  }
  return std::nullopt;
}

Refusal match_results(Draft& draft, Round& round) {
  std::vector<Round::Item> kept;
  for (Round::Item& item : round.items) {
    if (!has_role(item.turn, "tool")) {
      kept.push_back(std::move(item));
      continue;
    }
    if (Refusal refusal = match_result(round, item.turn, item.call)) return refusal;
    if (item.call == round.calls.size()) {
      drop_orphan(draft, item.turn);
      continue;
    }
    Call& call = round.calls[item.call];
    call.answered = true;
    if (!call.named) {
      draft.note(8, "messages", "the result of a call without a name was dropped");
      continue;
    }
    const Json* present = item.turn.message.find("tool_call_id");
    if (present == nullptr || !present->is_string() || present->as_string() != call.sent_id) {
      item.turn.message.set("tool_call_id", Json(call.sent_id));
      draft.note(8, "messages", "id of a tool result set");
    }
    item.is_result = true;
    kept.push_back(std::move(item));
  }
  round.items = std::move(kept);
  return std::nullopt;
}

// Open calls of a chat that goes on get a result that says so, behind the last real one.
void add_missing_results(Draft& draft, Round& round) {
  if (round.at_end && round.items.empty()) return;
  size_t behind = 0;
  for (size_t i = 0; i < round.items.size(); ++i) {
    if (round.items[i].is_result) behind = i + 1;
  }
  for (size_t i = 0; i < round.calls.size(); ++i) {
    const Call& call = round.calls[i];
    if (!call.named || call.answered) continue;
    Json message = Json::object({{"role", Json("tool")},
                                 {"tool_call_id", Json(call.sent_id)},
                                 {"content", Json(kNoResult)}});
    Round::Item item{{std::move(message), round.head.origin}, i, true};
    round.items.insert(round.items.begin() + static_cast<ptrdiff_t>(behind), std::move(item));
    ++behind;
    draft.note(8, "messages", "a result was added for a call that was not completed");
  }
}

// Llama 3: consecutive pairs of one call and its result, in the order of the calls.
void emit_pairs(Draft& draft, Round& round, std::vector<Turn>& out) {
  draft.note(8, "messages", "parallel calls split into pairs");
  bool first = true;
  for (size_t i = 0; i < round.calls.size(); ++i) {
    if (!round.calls[i].named) continue;
    Json message = first ? round.head.message
                         : Json::object({{"role", Json("assistant")}, {"content", Json("")}});
    first = false;
    message.set("tool_calls", Json(Json::Array{std::move(round.calls[i].json)}));
    out.push_back({std::move(message), round.head.origin});
    for (Round::Item& item : round.items) {
      if (item.is_result && item.call == i) out.push_back(std::move(item.turn));
    }
  }
  for (Round::Item& item : round.items) {
    if (!item.is_result) out.push_back(std::move(item.turn));
  }
}

void emit_round(Draft& draft, Round& round, std::vector<Turn>& out) {
  const auto named = std::count_if(round.calls.begin(), round.calls.end(),
                                   [](const Call& call) { return call.named; });
  const bool answered = std::any_of(round.items.begin(), round.items.end(),
                                    [](const Round::Item& item) { return item.is_result; });
  if (named != static_cast<ptrdiff_t>(round.calls.size())) {
    draft.note(8, "messages", "a call without a name was dropped");
  }
  if (draft.profile.one_call_per_message && named > 1 && answered) {
    emit_pairs(draft, round, out);
    return;
  }
  if (named == 0) {
    round.head.message.erase("tool_calls");
  } else {
    Json::Array calls;
    for (Call& call : round.calls) {
      if (call.named) calls.push_back(std::move(call.json));
    }
    round.head.message.set("tool_calls", Json(std::move(calls)));
  }
  if (named > 0 || !is_blank_content(round.head.message)) out.push_back(std::move(round.head));
  for (Round::Item& item : round.items) out.push_back(std::move(item.turn));
}

}  // namespace

Refusal pair_tool_results(Draft& draft) {
  if (!draft.on(8)) return std::nullopt;
  std::vector<Turn> out;
  out.reserve(draft.turns.size());
  size_t rounds = 0;
  for (size_t i = 0; i < draft.turns.size();) {
    Turn& turn = draft.turns[i];
    ++i;
    if (has_role(turn, "tool")) {
      drop_orphan(draft, turn);
      continue;
    }
    if (!has_role(turn, "assistant") || !has_calls(turn.message)) {
      out.push_back(std::move(turn));
      continue;
    }
    const size_t calls = turn.message.find("tool_calls")->as_array().size();
    if (calls > kCallsOfMessageMax) {
      return refuse(8, index_path("messages", turn.origin, "tool_calls"),
                    "the message has " + std::to_string(calls) + " calls, the limit is " +
                        std::to_string(kCallsOfMessageMax));
    }
    Round round;
    round.head = std::move(turn);
    round.number = rounds++;
    for (; i < draft.turns.size() && !has_role(draft.turns[i], "user") &&
           !has_role(draft.turns[i], "assistant");
         ++i) {
      round.items.push_back({std::move(draft.turns[i])});
    }
    round.at_end = i == draft.turns.size();
    read_calls(draft, round);
    if (Refusal refusal = match_results(draft, round)) return refusal;
    add_missing_results(draft, round);
    emit_round(draft, round, out);
  }
  draft.turns = std::move(out);
  return std::nullopt;
}

}  // namespace tandem::policies
