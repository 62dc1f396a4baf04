#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/json_text.h"
#include "base/utf8.h"

namespace tandem {
namespace {

// True when one of the eight bytes is a quote, a backslash, a control character or no ASCII: the usual test
// for a byte below n (here after xor: zero), in all lanes at once.
bool any_special(uint64_t word) {
  constexpr uint64_t kOnes = 0x0101010101010101;
  constexpr uint64_t kHigh = 0x8080808080808080;
  const uint64_t quote = word ^ (kOnes * '"');
  const uint64_t slash = word ^ (kOnes * '\\');
  const uint64_t found = (word - kOnes * 0x20) | (quote - kOnes) | (slash - kOnes) | word;
  return (found & kHigh) != 0;
}

// Length of the well-formed character of two to four bytes at the start of `text`; 0: there is none.
size_t multibyte_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const auto continues = [&](size_t i) { return (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80; };
  // Most of the characters of Asian scripts, without a detour; decode() knows the exceptions.
  if (text.size() >= 3 && ((lead >= 0xE1 && lead <= 0xEC) || lead >= 0xEE) && lead <= 0xEF && continues(1) &&
      continues(2)) {
    return 3;
  }
  const utf8::Decoded d = utf8::decode(text);
  return d.valid ? d.length : 0;
}

}  // namespace

size_t json_plain_run(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t word = 0;
    while (at + sizeof word <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof word);
      if (any_special(word)) break;
      at += sizeof word;
    }
    // The rest of the word, one by one.
    const size_t stop = std::min(at + sizeof word, text.size());
    while (at < stop) {
      const auto c = static_cast<unsigned char>(text[at]);
      if (c < 0x20 || c == '"' || c == '\\') return at;
      const size_t length = c < 0x80 ? 1 : multibyte_length(text.substr(at));
      if (length == 0) return at;
      at += length;
    }
  }
  return at;
}

Json::Json(uint64_t v) {
  if (v <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    value_ = static_cast<int64_t>(v);
  } else {
    value_ = static_cast<double>(v);
  }
}

const char* Json::type_name() const {
  constexpr const char* kNames[] = {"null",   "boolean", "integer", "number",
                                    "string", "array",   "object"};
  return kNames[value_.index()];
}

bool Json::as_bool() const {
  CHECK(is_bool());
  return std::get<bool>(value_);
}
int64_t Json::as_integer() const {
  CHECK(is_integer());
  return std::get<int64_t>(value_);
}
double Json::as_double() const {
  if (is_integer()) return static_cast<double>(std::get<int64_t>(value_));
  CHECK(is_number());
  return std::get<double>(value_);
}
const std::string& Json::as_string() const {
  CHECK(is_string());
  return std::get<std::string>(value_);
}
const Json::Array& Json::as_array() const {
  CHECK(is_array());
  return std::get<Array>(value_);
}
Json::Array& Json::as_array() {
  CHECK(is_array());
  return std::get<Array>(value_);
}
const Json::Object& Json::as_object() const {
  CHECK(is_object());
  return std::get<Object>(value_);
}
Json::Object& Json::as_object() {
  CHECK(is_object());
  return std::get<Object>(value_);
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const Member& m : as_object()) {
    if (m.first == key) return &m.second;
  }
  return nullptr;
}
Json* Json::find(std::string_view key) {
  return const_cast<Json*>(std::as_const(*this).find(key));
}

Json& Json::set(std::string_view key, Json value) {
  if (Json* existing = find(key)) {
    *existing = std::move(value);
  } else {
    as_object().emplace_back(std::string(key), std::move(value));
  }
  return *this;
}

bool Json::erase(std::string_view key) {
  Object& members = as_object();
  return std::erase_if(members, [&](const Member& m) { return m.first == key; }) > 0;
}

void Json::push_back(Json value) { as_array().push_back(std::move(value)); }

void append_json_string(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  while (true) {
    const size_t run = json_plain_run(text);
    out.append(text.substr(0, run));
    text.remove_prefix(run);
    if (text.empty()) break;
    const auto c = static_cast<unsigned char>(text.front());
    if (c >= 0x80) {
      out += "\xEF\xBF\xBD";
      text.remove_prefix(utf8::decode(text).length);
      continue;
    }
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        out += "\\u00";
        out += kHex[c >> 4];
        out += kHex[c & 15];
    }
    text.remove_prefix(1);
  }
  out += '"';
}

void append_json_number(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  CHECK(error == std::errc());
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void Json::dump_to(std::string& out) const {
  switch (value_.index()) {
    case 0: out += "null"; return;
    case 1: out += as_bool() ? "true" : "false"; return;
    case 2: out += std::to_string(as_integer()); return;
    case 3: append_json_number(out, as_double()); return;
    case 4: append_json_string(out, as_string()); return;
    case 5: {
      out += '[';
      bool first = true;
      for (const Json& item : as_array()) {
        if (!std::exchange(first, false)) out += ',';
        item.dump_to(out);
      }
      out += ']';
      return;
    }
    default: {
      out += '{';
      bool first = true;
      for (const Member& m : as_object()) {
        if (!std::exchange(first, false)) out += ',';
        append_json_string(out, m.first);
        out += ':';
        m.second.dump_to(out);
      }
      out += '}';
    }
  }
}

std::string Json::dump() const {
  std::string out;
  dump_to(out);
  return out;
}

}  // namespace tandem
