// The parser behind base/json.h: one pass over the text, no recursion. Strings are taken in runs, since
// prompts are long: what needs no change is looked at once and copied once.
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>

#include "base/json.h"
#include "base/json_text.h"
#include "base/utf8.h"

namespace tandem {
namespace {

// Puts values into a tree, within the limits. `stack_` points into the growing tree; a parent's container
// is not changed while a child is open, so the pointers stay valid.
class Builder {
 public:
  Builder(const JsonLimits& limits, Json& root) : limits_(limits), root_(root) {}

  bool add(Json value) { return place(std::move(value)) != nullptr; }
  bool open(Json container) {
    if (stack_.size() >= limits_.depth_max) {
      return fail(Errc::too_large, "nested deeper than " + std::to_string(limits_.depth_max));
    }
    Json* added = place(std::move(container));
    if (added == nullptr) return false;
    stack_.push_back({added, 0, {}});
    return true;
  }
  void close() { stack_.pop_back(); }
  bool key(std::string name) {
    Open& parent = stack_.back();
    parent.member = member_of(parent, name);
    const bool duplicate = parent.member < parent.value->as_object().size();
    key_ = std::move(name);
    if (!duplicate || limits_.duplicate_keys == DuplicateKeys::last_wins) return true;
    return fail(Errc::invalid_argument, "duplicate key");
  }
  bool fail(Errc code, std::string message) {
    error_ = make_error(code, std::move(message), path());
    return false;
  }

  [[nodiscard]] bool done() const { return stack_.empty(); }
  [[nodiscard]] bool in_object() const { return !stack_.empty() && stack_.back().value->is_object(); }
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

  Json* place(Json value) {
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
    if (member == members.size()) {
      members.emplace_back(std::move(key_), std::move(value));
    } else {
      members[member].second = std::move(value);
    }
    key_.clear();
    return &members[member].second;
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

class Parser {
 public:
  Parser(std::string_view text, Builder& builder) : text_(text), builder_(builder) {}

  bool run() {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;  // a byte order mark says nothing
    Expect expect = Expect::value;
    while (expect != Expect::end) {
      skip_space();
      if (!step(expect)) return false;
    }
    return at_ == text_.size() || bad();
  }

 private:
  enum class Expect : uint8_t { value, value_or_end, member, member_or_end, after, end };

  bool step(Expect& expect) {
    const char c = peek();
    if (expect == Expect::after) return after(c, expect);
    if ((expect == Expect::value_or_end && c == ']') || (expect == Expect::member_or_end && c == '}')) {
      return close(expect);
    }
    if (expect == Expect::member || expect == Expect::member_or_end) {
      expect = Expect::value;
      return member();
    }
    if (c == '{' || c == '[') {
      ++at_;
      expect = c == '{' ? Expect::member_or_end : Expect::value_or_end;
      return builder_.open(c == '{' ? Json::object() : Json::array());
    }
    expect = builder_.done() ? Expect::end : Expect::after;
    const bool added = scalar(c);
    if (expect == Expect::end) skip_space();
    return added;
  }

  bool after(char c, Expect& expect) {
    if (c == (builder_.in_object() ? '}' : ']')) return close(expect);
    if (c != ',') return bad();
    ++at_;
    expect = builder_.in_object() ? Expect::member : Expect::value;
    return true;
  }

  bool close(Expect& expect) {
    ++at_;
    builder_.close();
    expect = builder_.done() ? Expect::end : Expect::after;
    if (expect == Expect::end) skip_space();
    return true;
  }

  bool member() {
    std::string name;
    if (peek() != '"') return bad();
    if (!string(name) || !builder_.key(std::move(name))) return false;
    skip_space();
    if (peek() != ':') return bad();
    ++at_;
    return true;
  }

  bool scalar(char c) {
    if (c == '"') {
      std::string value;
      return string(value) && builder_.add(Json(std::move(value)));
    }
    if (c == '-' || (c >= '0' && c <= '9')) return number();
    if (word("true")) return builder_.add(Json(true));
    if (word("false")) return builder_.add(Json(false));
    if (word("null")) return builder_.add(Json());
    return bad();
  }

  bool string(std::string& out) {
    ++at_;
    while (true) {
      const size_t run = json_plain_run(text_.substr(at_));
      out.append(text_, at_, run);
      at_ += run;
      const char c = peek();
      if (c == '"') {
        ++at_;
        return true;
      }
      if (c != '\\') return bad();  // the end, a control character, bytes that are no UTF-8
      ++at_;
      if (!escape(out)) return bad();
    }
  }

  bool escape(std::string& out) {
    const char c = peek();
    ++at_;
    switch (c) {
      case '"':
      case '\\':
      case '/': out += c; return true;
      case 'b': out += '\b'; return true;
      case 'f': out += '\f'; return true;
      case 'n': out += '\n'; return true;
      case 'r': out += '\r'; return true;
      case 't': out += '\t'; return true;
      case 'u': break;
      default: --at_; return false;
    }
    const auto first = hex4();
    if (!first.has_value() || (*first >= 0xDC00 && *first <= 0xDFFF)) return false;
    if (*first < 0xD800 || *first > 0xDBFF) {
      utf8::append(out, *first);
      return true;
    }
    if (!text_.substr(at_).starts_with("\\u")) return false;
    at_ += 2;
    const auto second = hex4();
    if (!second.has_value() || *second < 0xDC00 || *second > 0xDFFF) return false;
    utf8::append(out, 0x10000 + ((*first - 0xD800) << 10) + (*second - 0xDC00));
    return true;
  }

  std::optional<uint32_t> hex4() {
    uint32_t value = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (code != std::errc() || end != digits.data() + 4) return std::nullopt;
    at_ += 4;
    return value;
  }

  // -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
  bool number() {
    const size_t begin = at_;
    if (peek() == '-') ++at_;
    const bool zero = peek() == '0';
    const size_t whole = digits();
    if (whole == 0 || (zero && whole > 1)) return bad();
    bool integer = true;
    if (peek() == '.') {
      integer = false;
      ++at_;
      if (digits() == 0) return bad();
    }
    if (peek() == 'e' || peek() == 'E') {
      integer = false;
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (digits() == 0) return bad();
    }
    const std::string_view text = text_.substr(begin, at_ - begin);
    return integer ? add_integer(text) : add_double(text);
  }

  bool add_integer(std::string_view text) {
    int64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code == std::errc()) return builder_.add(Json(value));
    return builder_.fail(Errc::invalid_argument, "integer does not fit in 64 bits");
  }

  bool add_double(std::string_view text) {
    double value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    // Too small and too large are one code there: strtod tells them apart.
    if (code != std::errc()) value = std::strtod(std::string(text).c_str(), nullptr);
    if (std::isfinite(value)) return builder_.add(Json(value));
    return builder_.fail(Errc::invalid_argument, "number out of range");
  }

  size_t digits() {
    const size_t begin = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ - begin;
  }

  bool word(std::string_view name) {
    if (!text_.substr(at_).starts_with(name)) return false;
    at_ += name.size();
    return true;
  }

  // NUL at the end of the text; one inside of it is no JSON either.
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_space() {
    while (peek() == ' ' || peek() == '\n' || peek() == '\r' || peek() == '\t') ++at_;
  }

  bool bad() { return builder_.fail(Errc::corrupt, "not valid JSON at byte " + std::to_string(at_ + 1)); }

  const std::string_view text_;
  Builder& builder_;
  size_t at_ = 0;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max) {
    return make_error(Errc::too_large, "JSON text of " + std::to_string(text.size()) +
                                           " bytes, limit " + std::to_string(limits.bytes_max));
  }
  Json root;
  Builder builder(limits, root);
  if (!Parser(text, builder).run()) return builder.take_error();
  return root;
}

}  // namespace tandem
