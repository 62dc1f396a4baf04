#include "policies/sanitize/receipt.h"

#include <algorithm>

namespace tandem::policies {
namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == ':' || c == '-' || c == '[' || c == ']';
}

std::string rule_name(int rule) { return "R" + std::to_string(rule); }

}  // namespace

std::string compact_receipt(const std::vector<ReceiptEntry>& receipt, size_t bytes_max) {
  constexpr std::string_view kCut = "...";
  std::vector<std::string> items;
  std::string line;
  for (const ReceiptEntry& entry : receipt) {
    std::string item = rule_name(entry.rule);
    const std::string& what = entry.code.empty() ? entry.key : entry.code;
    if (!what.empty()) item += '=';
    for (char c : what) item += is_plain(c) ? c : '_';
    if (std::find(items.begin(), items.end(), item) != items.end()) continue;
    if (line.size() + item.size() + 1 + kCut.size() > bytes_max) return line + std::string(kCut);
    if (!line.empty()) line += ',';
    line += item;
    items.push_back(std::move(item));
  }
  return line;
}

Json receipt_json(const std::vector<ReceiptEntry>& receipt) {
  Json::Array list;
  for (const ReceiptEntry& entry : receipt) {
    Json item = Json::object();
    item.set("rule", Json(rule_name(entry.rule)));
    if (!entry.key.empty()) item.set("key", Json(entry.key));
    if (!entry.code.empty()) item.set("code", Json(entry.code));
    item.set("detail", Json(entry.detail));
    list.emplace_back(std::move(item));
  }
  return Json(std::move(list));
}

std::optional<int> rule_number(std::string_view name) {
  if (name.size() < 2 || name.size() > 3 || name[0] != 'R' || name[1] == '0') return std::nullopt;
  int number = 0;
  for (char c : name.substr(1)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + (c - '0');
  }
  return number < kRules ? std::optional<int>(number) : std::nullopt;
}

}  // namespace tandem::policies
