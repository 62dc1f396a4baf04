#include "policies/parse/literals.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "policies/parse/answer_sink.h"

namespace tandem::policies {
namespace {

constexpr int kDepthMax = 64;

class LiteralReader {
 public:
  LiteralReader(std::string_view text, bool gemma) : text_(text), gemma_(gemma) {}

  std::optional<Json> whole(const SchemaPlace& place) {
    std::optional<Json> value = read_value(place, 0);
    skip_space();
    if (at_ != text_.size()) return std::nullopt;
    return value;
  }

 private:
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() {
    while (at_ < text_.size() && is_space_byte(text_[at_])) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  [[nodiscard]] bool at_delimiter() const {
    return gemma_ && text_.substr(at_, kGemmaQuote.size()) == kGemmaQuote;
  }
  [[nodiscard]] bool at_quote() const { return peek() == '"' || peek() == '\''; }

  std::optional<Json> read_value(const SchemaPlace& place, int depth) {
    skip_space();
    if (depth > kDepthMax || at_ == text_.size()) return std::nullopt;
    if (peek() == '{') return read_object(place, depth);
    if (peek() == '[') return read_array(place, depth);
    if (at_delimiter() || at_quote()) {
      std::optional<std::string> text = read_string();
      if (!text.has_value()) return std::nullopt;
      return Json(*std::move(text));
    }
    const std::string_view word = bare_word(",]}");
    if (gemma_) return typed_bare_value(word, place);
    return python_word(word);
  }

  static std::optional<Json> python_word(std::string_view word) {
    if (word == "True" || word == "true") return Json(true);
    if (word == "False" || word == "false") return Json(false);
    if (word == "None" || word == "null") return Json();
    Result<Json> number = parse_json(word);
    if (!number.ok() || !number->is_number()) return std::nullopt;
    return std::move(number).value();
  }

  std::string_view bare_word(std::string_view ends) {
    const size_t begin = at_;
    at_ = std::min(text_.find_first_of(ends, at_), text_.size());
    std::string_view word = text_.substr(begin, at_ - begin);
    while (!word.empty() && is_space_byte(word.back())) word.remove_suffix(1);
    return word;
  }

  std::optional<Json> read_object(const SchemaPlace& place, int depth) {
    Json::Object members;
    std::unordered_map<std::string, size_t> places;  // a key that comes again replaces its value
    ++at_;
    while (!take('}')) {
      skip_space();
      std::optional<std::string> key;
      if (at_delimiter() || at_quote()) {
        key = read_string();
      } else if (gemma_) {
        key = std::string(bare_word(":,{}[]"));
      }
      if (!key.has_value() || key->empty() || !take(':')) return std::nullopt;
      std::optional<Json> value = read_value(property_schema(place, *key), depth + 1);
      if (!value.has_value()) return std::nullopt;
      const auto [place_of_key, fresh] = places.try_emplace(*key, members.size());
      if (fresh) {
        members.emplace_back(*std::move(key), *std::move(value));
      } else {
        members[place_of_key->second].second = *std::move(value);
      }
      if (!take(',') && peek() != '}') return std::nullopt;
    }
    return Json::object(std::move(members));
  }

  std::optional<Json> read_array(const SchemaPlace& place, int depth) {
    Json array = Json::array();
    const SchemaPlace items = item_schema(place);
    ++at_;
    while (!take(']')) {
      std::optional<Json> value = read_value(items, depth + 1);
      if (!value.has_value()) return std::nullopt;
      array.push_back(*std::move(value));
      if (!take(',') && peek() != ']') return std::nullopt;
    }
    return array;
  }

  std::optional<std::string> read_string() {
    if (at_delimiter()) {
      at_ += kGemmaQuote.size();
      const size_t end = text_.find(kGemmaQuote, at_);
      if (end == std::string_view::npos) return std::nullopt;
      std::string out(text_.substr(at_, end - at_));
      at_ = end + kGemmaQuote.size();
      return out;
    }
    const char quote = text_[at_++];
    std::string out;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        ++at_;
        read_escape(out);
      } else {
        out.push_back(text_[at_++]);
      }
    }
    if (at_ == text_.size()) return std::nullopt;
    ++at_;
    return out;
  }

  // At the character behind a backslash. An escape that neither notation has stays as it is.
  void read_escape(std::string& out) {
    static constexpr std::string_view kNames = "nrtbf\"'\\/";
    static constexpr std::string_view kValues = "\n\r\t\b\f\"'\\/";
    const char name = text_[at_++];
    const size_t known = kNames.find(name);
    if (known != std::string_view::npos) {
      out.push_back(kValues[known]);
      return;
    }
    if (name == 'u') {
      // JSON's own reader knows about surrogate pairs.
      for (const size_t length : {size_t{10}, size_t{4}}) {
        std::string quoted = "\"\\u";
        quoted.append(text_.substr(at_, length)).push_back('"');
        Result<Json> value = parse_json(quoted);
        const bool one = length == 4 || (value.ok() && value->as_string().size() == 4);
        if (!value.ok() || !one || text_.size() - at_ < length) continue;
        out += value->as_string();
        at_ += length;
        return;
      }
    }
    out.push_back('\\');
    out.push_back(name);
  }

  std::string_view text_;
  bool gemma_;
  size_t at_ = 0;
};

}  // namespace

std::optional<Json> read_python_literal(std::string_view text) {
  return LiteralReader(text, false).whole({});
}

std::optional<Json> read_gemma_object(std::string_view text, const SchemaPlace& place) {
  std::optional<Json> value = LiteralReader(text, true).whole(place);
  if (!value.has_value() || !value->is_object()) return std::nullopt;
  return value;
}

}  // namespace tandem::policies
