// The script of fake_engine: "key value" lines, see fake_engine.cpp. Tests write such files.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::tests {

class FakeScript {
 public:
  static FakeScript read(const std::string& path) {
    FakeScript script;
    std::ifstream file(path);
    std::string line;
    if (!std::getline(file, line) || line != "fake-engine") return script;
    while (std::getline(file, line)) {
      const size_t space = line.find(' ');
      if (space == std::string::npos) continue;
      script.values_[line.substr(0, space)] = line.substr(space + 1);
    }
    return script;
  }

  [[nodiscard]] std::string text(const std::string& key, std::string otherwise) const {
    const auto at = values_.find(key);
    return at == values_.end() ? otherwise : at->second;
  }
  [[nodiscard]] int64_t number(const std::string& key, int64_t otherwise) const {
    const auto at = values_.find(key);
    return at == values_.end() ? otherwise : std::strtoll(at->second.c_str(), nullptr, 10);
  }
  [[nodiscard]] bool flag(const std::string& key) const { return number(key, 0) != 0; }

  [[nodiscard]] std::string answer(const std::string& prompt) const {
    if (flag("echo")) return prompt;
    std::string words;
    for (int64_t i = 0; i < number("tokens", 16); ++i) {
      words += (i == 0 ? "word" : " word") + std::to_string(i);
    }
    return text("answer", words);
  }

 private:
  std::map<std::string, std::string> values_;
};

// Each piece is a word with the spaces before it.
inline std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool starts = i == 0 || (text[i] == ' ' && text[i - 1] != ' ');
    if (starts) words.emplace_back();
    words.back().push_back(text[i]);
  }
  return words;
}

inline Errc errc_from_name(std::string_view name) {
  for (int code = 0; code <= static_cast<int>(Errc::internal); ++code) {
    if (name == errc_name(static_cast<Errc>(code))) return static_cast<Errc>(code);
  }
  return Errc::internal;
}

}  // namespace tandem::tests
