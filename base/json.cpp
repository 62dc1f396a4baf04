#include "base/json.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/utf8.h"

namespace tandem {
namespace {

// Builds a Json from nlohmann's SAX events, within the limits. `stack_` points into the growing
// tree; a parent's container is not changed while a child is open, so the pointers stay valid.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(const JsonLimits& limits, Json& root) : limits_(limits), root_(root) {}

  bool null() override { return add(Json()) != nullptr; }
  bool boolean(bool v) override { return add(Json(v)) != nullptr; }
  bool number_integer(number_integer_t v) override { return add(Json(int64_t{v})) != nullptr; }
  bool number_unsigned(number_unsigned_t v) override {
    if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return fail(Errc::invalid_argument, "integer does not fit in 64 bits");
    }
    return add(Json(static_cast<int64_t>(v))) != nullptr;
  }
  bool number_float(number_float_t v, const string_t& text) override {
    const bool is_integer_text = text.find_first_of(".eE") == std::string::npos;
    if (is_integer_text) return fail(Errc::invalid_argument, "integer does not fit in 64 bits");
    if (!std::isfinite(v)) return fail(Errc::invalid_argument, "number out of range");
    return add(Json(v)) != nullptr;
  }
  bool string(string_t& v) override { return add(Json(std::move(v))) != nullptr; }
  bool binary(binary_t&) override { return fail(Errc::corrupt, "binary value"); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    Open& parent = stack_.back();
    parent.member = member_of(parent, name);
    const bool duplicate = parent.member < parent.value->as_object().size();
    key_ = std::move(name);
    if (!duplicate || limits_.duplicate_keys == DuplicateKeys::last_wins) return true;
    return fail(Errc::invalid_argument, "duplicate key");
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    if (e.id >= 400 && e.id < 500) return fail(Errc::invalid_argument, "number out of range");
    error_ = make_error(Errc::corrupt, "not valid JSON at byte " + std::to_string(position), path());
    return false;
  }

  Error take_error() { return std::move(error_); }

 private:
  struct Open {
    Json* value;
    size_t member = 0;  // of an object: the one that is being read
    std::map<std::string, size_t> index;  // of a large object: where its keys are
  };

  // Where the member of this name is, or will be. Linear search is quadratic in the number of members;
  // large objects use an index.
  static size_t member_of(Open& parent, const std::string& name) {
    constexpr size_t kLinearMax = 16;
    const Json::Object& members = parent.value->as_object();
    if (members.size() < kLinearMax) {
      size_t at = 0;
      while (at < members.size() && members[at].first != name) ++at;
      return at;
    }
    // A tree and not a hash or a sorted vector: no order of keys makes it slow.
    if (parent.index.empty()) {
      for (size_t i = 0; i < members.size(); ++i) parent.index.emplace(members[i].first, i);
    }
    return parent.index.emplace(name, members.size()).first->second;
  }

  bool fail(Errc code, std::string message) {
    error_ = make_error(code, std::move(message), path());
    return false;
  }

  Json* add(Json value) {
    if (++values_ > limits_.values_max) {
      fail(Errc::too_large, "more than " + std::to_string(limits_.values_max) + " values");
      return nullptr;
    }
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *stack_.back().value;
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.as_array().back();
    }
    Json::Object& members = parent.as_object();
    const size_t member = stack_.back().member;
    if (member == members.size()) members.emplace_back(std::move(key_), Json());
    members[member].second = std::move(value);
    key_.clear();
    return &members[member].second;
  }

  bool open(Json container) {
    if (stack_.size() >= limits_.depth_max) {
      return fail(Errc::too_large, "nested deeper than " + std::to_string(limits_.depth_max));
    }
    Json* added = add(std::move(container));
    if (added == nullptr) return false;
    stack_.push_back({added, 0, {}});
    return true;
  }

  bool close() {
    stack_.pop_back();
    return true;
  }

  // Path of the value being read, such as messages[2].content.
  std::string path() const {
    std::string out;
    for (size_t i = 0; i < stack_.size(); ++i) {
      const Json& container = *stack_[i].value;
      const bool last = i + 1 == stack_.size();
      if (container.is_array()) {
        const size_t size = container.as_array().size();
        out += '[' + std::to_string(last ? size : size - 1) + ']';
      } else {
        const std::string& name = last ? key_ : container.as_object()[stack_[i].member].first;
        if (name.empty()) continue;
        if (!out.empty()) out += '.';
        out += utf8::repair(std::string_view(name).substr(0, 64));
      }
    }
    return out;
  }

  const JsonLimits& limits_;
  Json& root_;
  std::vector<Open> stack_;
  std::string key_;
  size_t values_ = 0;
  Error error_;
};

}  // namespace

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
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text.front());
    if (c >= 0x20 && c < 0x7F && c != '"' && c != '\\') {
      out += static_cast<char>(c);
      text.remove_prefix(1);
      continue;
    }
    if (c >= 0x80) {
      const utf8::Decoded d = utf8::decode(text);
      if (d.valid) {
        out.append(text.substr(0, d.length));
      } else {
        out += "\xEF\xBF\xBD";
      }
      text.remove_prefix(d.length);
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
      case 0x7F: out += '\x7F'; break;
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

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max) {
    return make_error(Errc::too_large, "JSON text of " + std::to_string(text.size()) +
                                           " bytes, limit " + std::to_string(limits.bytes_max));
  }
  Json root;
  Builder builder(limits, root);
  // The third-party parser throws only for out-of-range numbers on some versions; fence it.
  try {
    if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
      return builder.take_error();
    }
  } catch (const nlohmann::json::exception&) {
    return make_error(Errc::corrupt, "not valid JSON");
  }
  return root;
}

}  // namespace tandem
