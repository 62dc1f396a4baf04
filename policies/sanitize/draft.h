// Draft: one request on its way through the rules. Every change goes through it, so that the
// receipt cannot miss one. Inside of policies/sanitize only.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "policies/sanitize/sanitize.h"

namespace tandem::policies {

// A message and where it stood in the client's list (refusals name that place).
struct Turn {
  Json message;
  size_t origin = 0;
};

struct Draft {
  Json request;
  std::vector<Turn> turns;
  const ModelProfile& profile;
  const TargetFacts& target;
  const SanitizeSettings& settings;
  Sanitized result;

  [[nodiscard]] bool on(int rule) const { return !settings.off[static_cast<size_t>(rule)]; }
  [[nodiscard]] const Json* find(std::string_view key) const { return request.find(key); }

  // Both do nothing, and write nothing on the receipt, where nothing would change.
  void set(int rule, std::string_view key, Json value, std::string detail);
  void erase(int rule, std::string_view key, std::string detail);
  void note(int rule, std::string_view key, std::string detail);
  void warn(int rule, std::string code, std::string detail);

 private:
  void write(ReceiptEntry entry);
};

// Past it a receipt says only that it is cut: a hostile request must not grow it without end.
inline constexpr size_t kReceiptEntriesMax = 1024;

using Refusal = std::optional<Rejection>;
Rejection refuse(int rule, std::string path, std::string message);

// Text
bool is_space(char c);
bool is_blank(std::string_view text);
std::string_view trim(std::string_view text);

// Messages. Roles were checked when the draft was made.
const std::string& role_of(const Json& message);
bool has_role(const Turn& turn, std::string_view role);
bool has_calls(const Json& message);         // a list of calls that is not empty
bool is_blank_content(const Json& message);  // null, missing, white space or no parts
std::string index_path(std::string_view list, size_t index, std::string_view field);

}  // namespace tandem::policies
