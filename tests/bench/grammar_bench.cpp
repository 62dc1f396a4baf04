// Cost of constrained output over a real vocabulary:
//
//   grammar_bench FILE [--repeats N] [--schemas LINES] [--bounds]
//
// FILE: a GGUF file, of which only the tokenizer is used; LINES: more cases, each line an object with `name`
// and `schema`. Each case is a grammar and mostly a text of it, walked token by token as the tokenizer splits
// it. One JSON line a case: milliseconds to build grammar and tables, microseconds of the mask of each
// token with an empty cache of masks (cold: a grammar's first answer) and a full one (warm: a later answer),
// near the token limit (tight: the text's tokens with 0 to 8 more left than the shortest end needs; end: random
// answers of so many tokens altogether; both with the cache empty at first), and of accepting a
// token. Medians, 99th percentiles and maxima of processor time over all tokens and repeats. With --bounds it fails
// when a median of masks is over 300 us, a 99th percentile over 1500 us or a schema over 50 ms. More cases are in
// tests/bench/grammar_schemas.jsonl.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/gguf/gguf.h"
#include "engine/grammar/matcher.h"
#include "engine/grammar/schema_compiler.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/support/json_grammar.h"

namespace tandem_tests {
namespace {

using tandem::Json;
using tandem::Result;
using tandem::engine::Grammar;
using tandem::engine::GrammarBuilder;
using tandem::engine::GrammarMatcher;
using tandem::engine::MaskCache;
using tandem::engine::MatcherTables;
using tandem::engine::TokenTrie;
using tandem::engine::Tokenizer;

struct Case {
  std::string name;
  std::function<Result<Grammar>()> build;
  std::string text;
  bool from_schema = false;
};

// Of this thread: other load does not count.
double now_us() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

double us_since(double start) { return now_us() - start; }

struct Times {
  std::vector<double> us;
  [[nodiscard]] Json summary() {
    std::sort(us.begin(), us.end());
    const auto at = [this](double share) {
      return us.empty() ? 0 : us[std::min(us.size() - 1, static_cast<size_t>(share * static_cast<double>(us.size())))];
    };
    return Json::object({{"median_us", at(0.5)}, {"p99_us", at(0.99)}, {"max_us", at(1)}});
  }
};

std::string prose() {
  return "The quick brown fox jumps over the lazy dog; then it rests (for a while), reads 3 letters, and "
         "answers: \\\"no, thanks\\\". Caf\xC3\xA9 na\xC3\xAFve \xE4\xBD\xA0\xE5\xA5\xBD\xE4\xB8\x96\xE7\x95\x8C "
         "\xF0\x9F\x98\x80 \xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82. Path C:\\\\temp\\\\x, a tab\\t and "
         "a new line\\n are in here as well, and some code: for (i = 0; i < n; ++i) { sum += a[i]; }";
}

std::string person(int i) {
  return "{\"name\": \"Person Number " + std::to_string(i) + "\", \"age\": " + std::to_string(20 + i) +
         ", \"email\": \"person" + std::to_string(i) + "@example.org\", \"role\": \"" +
         (i % 2 == 0 ? "administrator" : "guest") + "\", \"scores\": [1.5, " + std::to_string(i) +
         ", -2e3], \"bio\": \"" + prose() + "\"}";
}

std::string people(int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) text += (i > 0 ? ", " : "") + person(i);
  return text + "]";
}

Case by_hand(std::string name, std::function<tandem::engine::GrammarPart(GrammarBuilder&, JsonRules&)> root,
             std::string text) {
  return {std::move(name),
          [root = std::move(root)] {
            GrammarBuilder builder;
            JsonRules json(builder);
            return builder.build(root(builder, json));
          },
          std::move(text)};
}

Case by_schema(std::string name, std::string schema, std::string text) {
  return {std::move(name),
          [schema = std::move(schema)]() -> Result<Grammar> {
            TRY_ASSIGN(const Json json, tandem::parse_json(schema));
            return tandem::engine::compile_json_schema(json);
          },
          std::move(text), true};
}

std::vector<Case> cases() {
  std::vector<Case> out;
  out.push_back(by_hand("json_value", [](auto&, auto& json) { return json.value(); }, people(6)));
  out.push_back(by_hand("object_list", [](auto&, auto& json) {
    return json.list(json.object({{"name", json.string()}, {"age", json.number()}, {"email", json.string()},
                                  {"role", json.one_of({"administrator", "editor", "guest"})},
                                  {"scores", json.list(json.number())}, {"bio", json.string()}}));
  }, people(6)));
  out.push_back(by_hand("bounded_strings", [](auto&, auto& json) {
    return json.list(json.object({{"name", json.short_string(1, 64)}, {"age", json.number()},
                                  {"email", json.short_string(3, 128)},
                                  {"role", json.one_of({"administrator", "editor", "guest"})},
                                  {"scores", json.list(json.number())}, {"bio", json.short_string(0, 1000)}}));
  }, people(3)));
  out.push_back(by_schema("schema_any_object", R"({"type":"object"})", "{\"list\": " + people(4) + "}"));
  out.push_back(by_schema("schema_people", R"({"type":"array","items":{"type":"object","properties":{
    "name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},"email":{"type":"string"},
    "role":{"enum":["administrator","editor","guest"]},"scores":{"type":"array","items":{"type":"number"}},
    "bio":{"type":"string"}},"required":["name","age","email","role","scores","bio"],
    "additionalProperties":false}})", people(6)));
  out.push_back(by_schema("schema_bounded", R"({"type":"array","maxItems":100,"items":{"type":"object","properties":{
    "name":{"type":"string","minLength":1,"maxLength":64},"age":{"type":"integer"},
    "email":{"type":"string","maxLength":128},"role":{"type":"string","pattern":"^[a-z]{3,20}$"},
    "scores":{"type":"array","items":{"type":"number"},"maxItems":8},
    "bio":{"type":"string","maxLength":1000}},"required":["name","age","bio"],
    "additionalProperties":false}})", people(3)));
  out.push_back(by_schema("schema_recursive", R"({"$ref":"#/$defs/node","$defs":{"node":{"anyOf":[
    {"type":"object","properties":{"left":{"$ref":"#/$defs/node"},"op":{"const":"add"},"right":{"$ref":"#/$defs/node"}},
     "required":["left","op","right"],"additionalProperties":false},
    {"type":"object","properties":{"left":{"$ref":"#/$defs/node"},"op":{"const":"mul"},"right":{"$ref":"#/$defs/node"}},
     "required":["left","op","right"],"additionalProperties":false},
    {"type":"number"},{"type":"string"}]}}})", [] {
    std::string text = "1";
    for (int i = 0; i < 12; ++i) {
      text = "{\"left\": " + text + ", \"op\": \"" + (i % 2 == 0 ? "add" : "mul") + "\", \"right\": \"some text " +
             std::to_string(i) + "\"}";
    }
    return text;
  }()));
  return out;
}

// Tokens more than the shortest end needs, in what is measured near it.
constexpr int64_t kMoreMax = 8;

// One walk along the text; false when the grammar does not take it. more < 0: without a token limit.
bool walk(const MatcherTables& tables, const std::vector<int32_t>& tokens, MaskCache& cache, int64_t more,
          Times& masks, Times& accepts) {
  GrammarMatcher matcher(tables);
  std::vector<uint64_t> words(cache.trie().mask_words());
  for (const int32_t token : tokens) {
    const auto start = now_us();
    const int64_t left = more >= 0 ? matcher.tokens_to_end() + more : GrammarMatcher::kNoLimit;
    const auto result = matcher.mask(cache, words, left);
    masks.us.push_back(us_since(start));
    const auto bit = static_cast<size_t>(token);
    if (!result.ok() || (more < 0 && (words[bit / 64] >> (bit % 64) & 1) == 0)) return false;
    const auto accept_start = now_us();
    const auto fits = matcher.accept_token(token);
    accepts.us.push_back(us_since(accept_start));
    if (!fits.ok() || !*fits) return false;
  }
  return matcher.can_end();
}

// A random answer within its limit; false when it did not end in time.
bool walk_to_end(const MatcherTables& tables, MaskCache& cache, int64_t more, std::mt19937_64& random, Times& masks) {
  GrammarMatcher matcher(tables);
  std::vector<uint64_t> words(cache.trie().mask_words());
  for (int64_t left = tables.tokens_min() + more; left > 0; --left) {
    const auto start = now_us();
    const auto result = matcher.mask(cache, words, left);
    masks.us.push_back(us_since(start));
    std::vector<int32_t> allowed;
    for (size_t i = 0; i < words.size(); ++i) {
      for (uint64_t word = words[i]; word != 0; word &= word - 1) {
        allowed.push_back(static_cast<int32_t>(i * 64 + static_cast<size_t>(__builtin_ctzll(word))));
      }
    }
    if (!result.ok() || allowed.empty()) return false;
    const int32_t token = allowed[random() % allowed.size()];
    const auto fits = matcher.accept_token(token);
    if (!fits.ok() || !*fits) return false;
    if (cache.trie().is_end_token(token)) return true;
  }
  return matcher.can_end();
}

Json run_case(const Case& one, const Tokenizer& tokenizer, const TokenTrie& trie, int repeats) {
  auto start = now_us();
  auto grammar = one.build();
  const double grammar_us = us_since(start);
  if (!grammar.ok()) return Json::object({{"case", one.name}, {"error", grammar.error().message}});
  const auto states = static_cast<int64_t>(grammar->states().size());
  start = now_us();
  const auto tables = MatcherTables::build(*std::move(grammar), trie);
  const double tables_us = us_since(start);
  const auto tokens = tokenizer.encode(one.text);  // none: a case without a text
  if (!tables.ok() || !tokens.ok()) return Json::object({{"case", one.name}, {"error", "no tables or tokens"}});
  Times cold, warm, tight, end, accepts;
  uint64_t fills = 0;
  bool fits = true;
  size_t cache_bytes = 0;
  std::mt19937_64 random(1);
  for (int i = 0; i < repeats; ++i) {
    for (int64_t more = 0; more <= kMoreMax; ++more) {
      MaskCache near_cache(trie);
      Times unused;
      fits = fits && (tokens->empty() || walk(*tables, *tokens, near_cache, more, tight, unused));
      MaskCache end_cache(trie);
      fits = fits && walk_to_end(*tables, end_cache, more, random, end);
    }
    if (tokens->empty()) continue;
    MaskCache cache(trie);
    fits = fits && walk(*tables, *tokens, cache, -1, cold, accepts);
    fits = fits && walk(*tables, *tokens, cache, -1, warm, accepts);
    fills = cache.fills();
    cache_bytes = cache.memory_bytes();
  }
  return Json::object({{"case", one.name}, {"fits", fits}, {"tokens", static_cast<int64_t>(tokens->size())},
                       {"states", states}, {"grammar_ms", grammar_us / 1000}, {"tables_ms", tables_us / 1000},
                       {"tokens_min", static_cast<int64_t>(tables->tokens_min())}, {"fills", fills},
                       {"cache_kib", static_cast<int64_t>(cache_bytes / 1024)},
                       {"cold", cold.summary()}, {"warm", warm.summary()}, {"tight", tight.summary()},
                       {"end", end.summary()}, {"accept", accepts.summary()}});
}

bool within_bounds(const Json& line, bool from_schema) {
  const auto number = [&line](const char* group, const char* key) {
    const Json* object = group == nullptr ? &line : line.find(group);
    const Json* value = object == nullptr ? nullptr : object->find(key);
    return value == nullptr ? 1e9 : value->as_double();
  };
  bool good = !from_schema || number(nullptr, "grammar_ms") + number(nullptr, "tables_ms") <= 50;
  for (const char* group : {"cold", "warm", "tight", "end"}) {
    good = good && number(group, "median_us") <= 300 && number(group, "p99_us") <= 1500;
  }
  return good;
}

bool add_schemas(const char* path, std::vector<Case>& out) {
  std::ifstream file(path);
  std::string line;
  size_t added = 0;
  for (; std::getline(file, line); ++added) {
    const auto parsed = tandem::parse_json(line);
    const Json* schema = parsed.ok() ? parsed->find("schema") : nullptr;
    const Json* name = parsed.ok() ? parsed->find("name") : nullptr;
    if (schema == nullptr || name == nullptr || !name->is_string()) return false;
    out.push_back(by_schema(name->as_string(), schema->dump(), ""));
  }
  return added > 0;
}

int run(int argc, char** argv) {
  int repeats = 5;
  bool bounds = false;
  std::vector<Case> all = cases();
  for (int i = 2; i < argc; ++i) bounds = bounds || std::string_view(argv[i]) == "--bounds";
  for (int i = 2; i + 1 < argc; ++i) {
    if (std::string_view(argv[i]) == "--repeats") repeats = std::max(1, std::atoi(argv[i + 1]));
    if (std::string_view(argv[i]) == "--schemas" && !add_schemas(argv[i + 1], all)) {
      std::fprintf(stderr, "%s: not lines with name and schema\n", argv[i + 1]);
      return 1;
    }
  }
  const auto file = argc > 1 ? tandem::engine::GgufFile::open(argv[1])
                             : tandem::make_error(tandem::Errc::invalid_argument, "grammar_bench FILE");
  if (!file.ok()) {
    std::fprintf(stderr, "%s\n", file.error().message.c_str());
    return 1;
  }
  const auto tokenizer = Tokenizer::from_gguf(file->metadata());
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  const auto start = now_us();
  const TokenTrie trie = TokenTrie::from_tokenizer(*tokenizer);
  const double trie_us = us_since(start);
  const Json vocabulary = Json::object({{"vocabulary", static_cast<int64_t>(trie.vocab_size())},
                                        {"trie_nodes", static_cast<int64_t>(trie.node_count())},
                                        {"trie_kib", static_cast<int64_t>(trie.memory_bytes() / 1024)},
                                        {"trie_ms", trie_us / 1000}});
  std::printf("%s\n", vocabulary.dump().c_str());
  bool all_fit = true;
  for (const Case& one : all) {
    const Json line = run_case(one, *tokenizer, trie, repeats);
    const Json* fits = line.find("fits");
    all_fit = all_fit && fits != nullptr && fits->as_bool();
    if (bounds && !within_bounds(line, one.from_schema)) {
      std::fprintf(stderr, "out of bounds: %s\n", one.name.c_str());
      all_fit = false;
    }
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }
  return all_fit ? 0 : 1;
}

}  // namespace
}  // namespace tandem_tests

int main(int argc, char** argv) { return tandem_tests::run(argc, argv); }
