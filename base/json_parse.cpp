// The parser behind base/json.h: RapidJSON's events, one pass without recursion, and our limits.
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>

#include "base/json.h"
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

// The library's events, by hand where it is laxer than RFC 8259 asks of us.
class Events {
 public:
  explicit Events(Builder& builder) : builder_(builder) {}

  bool Null() { return builder_.add(Json()); }
  bool Bool(bool value) { return builder_.add(Json(value)); }
  // Numbers come as their text: the library would round large integers without a word.
  bool RawNumber(const char* text, rapidjson::SizeType length, bool /*copy*/) {
    const std::string_view number(text, length);
    return number.find_first_of(".eE") == std::string_view::npos ? add_integer(number) : add_double(number);
  }
  bool String(const char* text, rapidjson::SizeType length, bool /*copy*/) {
    const std::string_view value(text, length);
    return well_formed(value) && builder_.add(Json(value));
  }
  bool Key(const char* text, rapidjson::SizeType length, bool /*copy*/) {
    const std::string_view name(text, length);
    return well_formed(name) && builder_.key(std::string(name));
  }
  bool StartObject() { return builder_.open(Json::object()); }
  bool StartArray() { return builder_.open(Json::array()); }
  bool EndObject(rapidjson::SizeType /*members*/) { return close(); }
  bool EndArray(rapidjson::SizeType /*items*/) { return close(); }
  // Asked for by its templates; numbers come as text.
  bool Int(int) { return false; }
  bool Uint(unsigned) { return false; }
  bool Int64(int64_t) { return false; }
  bool Uint64(uint64_t) { return false; }
  bool Double(double) { return false; }

  [[nodiscard]] bool lone_surrogate() const { return lone_surrogate_; }

 private:
  bool close() {
    builder_.close();
    return true;
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

  // The library checks bytes, but takes an escaped second half of a pair alone; it stands there as ED A0..BF.
  bool well_formed(std::string_view text) {
    for (size_t at = text.find('\xED'); at != std::string_view::npos; at = text.find('\xED', at + 1)) {
      if (static_cast<unsigned char>(text[at + 1]) < 0xA0) continue;
      lone_surrogate_ = true;
      return false;
    }
    return true;
  }

  Builder& builder_;
  bool lone_surrogate_ = false;
};

Result<void> read(std::string_view text, Builder& builder) {
  constexpr unsigned kFlags = rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag |
                              rapidjson::kParseNumbersAsStringsFlag;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  const size_t begin = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  rapidjson::MemoryStream stream(text.data() + begin, text.size() - begin);
  rapidjson::Reader reader;
  Events events(builder);
  const rapidjson::ParseResult result = reader.Parse<kFlags>(stream, events);
  // A NUL looks like the end of the text to the library.
  if (!result.IsError() && stream.Tell() == text.size() - begin) return {};
  if (result.Code() == rapidjson::kParseErrorNumberTooBig) {
    builder.fail(Errc::invalid_argument, "number out of range");
  } else if (result.Code() != rapidjson::kParseErrorTermination || events.lone_surrogate()) {
    const size_t at = begin + (result.IsError() ? result.Offset() : stream.Tell());
    builder.fail(Errc::corrupt, "not valid JSON at byte " + std::to_string(at + 1));
  }
  return builder.take_error();
}

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max) {
    return make_error(Errc::too_large, "JSON text of " + std::to_string(text.size()) +
                                           " bytes, limit " + std::to_string(limits.bytes_max));
  }
  Json root;
  Builder builder(limits, root);
  TRY(read(text, builder));
  return root;
}

}  // namespace tandem
