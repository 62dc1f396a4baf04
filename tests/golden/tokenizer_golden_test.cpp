// Token ids of stored texts are equal to llama.cpp's, as plain text and with special tokens recognised,
// for every vocabulary that is there. A model that is not in the cache is skipped with a line that says
// so; the tiny hybrid ships with the sources, so that one tokenizer is always tested.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/json.h"
#include "engine/gguf/gguf.h"
#include "engine/tokenizer/detokenizer.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/support/catch.h"

namespace {

using tandem::Json;
using tandem::engine::GgufFile;
using tandem::engine::TokenId;
using tandem::engine::Tokenizer;

std::filesystem::path source_path(const std::string& relative) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return std::filesystem::path(root != nullptr ? root : ".") / relative;
}

std::filesystem::path cache_path(const std::string& file) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path base;
  if (cache != nullptr && *cache != '\0') {
    base = cache;
  } else {
    base = std::filesystem::path(home != nullptr ? home : "/") / ".cache";
  }
  return base / "tandem" / "models" / file;
}

Json read_golden(const std::string& name) {
  std::ifstream file(source_path("tests/golden/data/" + name), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  auto json = tandem::parse_json(text);
  REQUIRE(json.ok());
  return *std::move(json);
}

std::vector<TokenId> ids_of(const Json& entry, const char* key) {
  std::vector<TokenId> ids;
  for (const Json& id : entry.find(key)->as_array()) {
    ids.push_back(static_cast<TokenId>(id.as_integer()));
  }
  return ids;
}

void check_texts(const std::filesystem::path& model, const std::string& golden, size_t texts_min) {
  const auto file = GgufFile::open(model.string());
  REQUIRE(file.ok());
  const auto tokenizer = Tokenizer::from_gguf(file->metadata());
  REQUIRE(tokenizer.ok());
  const Json data = read_golden(golden);
  const auto& entries = data.find("tokens")->as_array();
  REQUIRE(entries.size() >= texts_min);
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string& text = entries[i].find("text")->as_string();
    INFO("text " << i << ": " << text);
    const auto plain = tokenizer->encode(text);
    REQUIRE(plain.ok());
    CHECK(*plain == ids_of(entries[i], "ids"));
    const auto special = tokenizer->encode(text, {.parse_special = true});
    REQUIRE(special.ok());
    CHECK(*special == ids_of(entries[i], "ids_special"));
    const auto back = tokenizer->decode(*special, {.keep_special = true});
    REQUIRE(back.ok());
    CHECK(*back == text);
  }
}

void check_cached(const std::string& model, const std::string& golden, size_t texts_min) {
  const auto path = cache_path(model);
  if (!std::filesystem::exists(path)) {
    WARN("SKIPPED: " << path.string() << " is not there");
    return;
  }
  check_texts(path, golden, texts_min);
}

}  // namespace

TEST_CASE("token ids: tiny hybrid (qwen35)") {
  check_texts(source_path("tests/models/tiny-hybrid-q8_0.gguf"), "tiny-hybrid-tokens.json", 240);
}

TEST_CASE("token ids: smollm2-135m (smollm)") {
  check_cached("SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m.json", 240);
}

TEST_CASE("token ids: qwen2.5-coder-0.5b (qwen2)") {
  check_cached("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "qwen2.5-coder-0.5b.json", 240);
}

TEST_CASE("token ids: qwen2.5-coder-1.5b (qwen2)") {
  check_cached("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", "qwen2.5-coder-1.5b.json", 20);
}
