#include "policies/sanitize/draft.h"

#include <algorithm>

namespace tandem::policies {

void Draft::set(int rule, std::string_view key, Json value, std::string detail) {
  Json* present = request.find(key);
  if (present != nullptr && *present == value) return;
  if (present != nullptr) {
    *present = std::move(value);
  } else {
    request.set(key, std::move(value));
  }
  note(rule, key, std::move(detail));
}

void Draft::erase(int rule, std::string_view key, std::string detail) {
  if (request.erase(key)) note(rule, key, std::move(detail));
}

void Draft::note(int rule, std::string_view key, std::string detail) {
  if (!result.receipt.empty()) {  // a long chat repeats one repair many times: once is enough
    const ReceiptEntry& last = result.receipt.back();
    if (last.rule == rule && last.key == key && last.detail == detail) return;
  }
  write({rule, std::string(key), {}, std::move(detail)});
}

void Draft::warn(int rule, std::string code, std::string detail) {
  write({rule, {}, std::move(code), std::move(detail)});
}

void Draft::write(ReceiptEntry entry) {
  std::vector<ReceiptEntry>& receipt = result.receipt;
  if (receipt.size() >= kReceiptEntriesMax) return;
  if (receipt.size() + 1 == kReceiptEntriesMax) {
    entry = {entry.rule, {}, "receipt_cut", "there are more changes than this list holds"};
  }
  receipt.push_back(std::move(entry));
}

Rejection refuse(int rule, std::string path, std::string message) {
  Rejection rejection;
  rejection.rule = rule;
  rejection.path = std::move(path);
  rejection.message = std::move(message);
  return rejection;
}

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

bool is_blank(std::string_view text) { return std::all_of(text.begin(), text.end(), is_space); }

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

const std::string& role_of(const Json& message) { return message.find("role")->as_string(); }

bool has_role(const Turn& turn, std::string_view role) { return role_of(turn.message) == role; }

bool has_calls(const Json& message) {
  const Json* calls = message.find("tool_calls");
  return calls != nullptr && calls->is_array() && !calls->as_array().empty();
}

bool is_blank_content(const Json& message) {
  const Json* content = message.find("content");
  if (content == nullptr || content->is_null()) return true;
  if (content->is_array()) return content->as_array().empty();
  return content->is_string() && is_blank(content->as_string());
}

std::string index_path(std::string_view list, size_t index, std::string_view field) {
  std::string path(list);
  path += '[';
  path += std::to_string(index);
  path += ']';
  if (!field.empty()) {
    path += '.';
    path += field;
  }
  return path;
}

}  // namespace tandem::policies
