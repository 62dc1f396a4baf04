// Encoding and decoding with a small vocabulary: merges, special tokens, marks, pieces of every
// pre-tokenizer, malformed text, and time bounds that a quadratic merge fails by far.
#include <algorithm>
#include <ctime>

#include "base/utf8.h"
#include "engine/gguf/gguf.h"
#include "engine/tokenizer/detokenizer.h"
#include "engine/tokenizer/pretokenizer.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/tiny_vocabulary.h"

namespace {

using tandem::Errc;
using tandem::engine::ByteRange;
using tandem::engine::Detokenizer;
using tandem::engine::EncodeOptions;
using tandem::engine::find_pre_tokenizer;
using tandem::engine::GgufFile;
using tandem::engine::PieceSplitter;
using tandem::engine::TokenId;
using tandem::engine::Tokenizer;
using tandem_tests::add_vocabulary;
using tandem_tests::GgufWriter;
using tandem_tests::SpecialToken;
using tandem_tests::TinyVocabulary;

Tokenizer make(const TinyVocabulary& vocabulary = {}) {
  GgufWriter w;
  add_vocabulary(w, vocabulary);
  const auto file = GgufFile::from_bytes(w.bytes());
  REQUIRE(file.ok());
  auto tokenizer = Tokenizer::from_gguf(file->metadata());
  INFO((tokenizer.ok() ? "" : tokenizer.error().message));
  REQUIRE(tokenizer.ok());
  return *std::move(tokenizer);  // the file is gone: nothing of it may be used
}

// The tokens' own bytes, with bars between: "hello| w|o".
std::string split(const Tokenizer& tokenizer, std::string_view text,
                  const EncodeOptions& options = {}) {
  const auto ids = tokenizer.encode(text, options);
  REQUIRE(ids.ok());
  std::string out;
  for (const TokenId id : *ids) {
    if (!out.empty()) out += '|';
    out += tokenizer.token_bytes(id);
  }
  return out;
}

std::string pieces(std::string_view pre, std::string_view text) {
  PieceSplitter splitter(*find_pre_tokenizer(pre), text);
  std::string out;
  while (splitter.next()) {
    if (!out.empty()) out += '|';
    out += splitter.piece();
  }
  return out;
}

// Processor time, so that a busy machine does not fail the test.
double thread_cpu_s() {
  timespec now{};
  REQUIRE(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

int count_of(const std::vector<TokenId>& ids, TokenId wanted) {
  return static_cast<int>(std::count(ids.begin(), ids.end(), wanted));
}

}  // namespace

TEST_CASE("tokenizer merges by rank, leftmost first") {
  const Tokenizer t = make();
  CHECK(split(t, "hello world") == "hello| w|o|r|l|d");
  CHECK(split(t, "aaaaaaa") == "aaaa|aa|a");
  CHECK(split(t, "lll") == "ll|l");
  CHECK(split(t, "helhell") == "he|l|hell");
  CHECK(split(t, "").empty());
}

TEST_CASE("tokenizer: a pair that a better merge has taken apart does not count any more") {
  // After b+c the pair a+b (rank 1) is gone; a+bc must wait for bc+d.
  const Tokenizer t =
      make({.pre = "qwen2", .merges = {{"b", "c"}, {"a", "b"}, {"bc", "d"}, {"a", "bc"}}});
  CHECK(split(t, "abcd") == "a|bcd");
  CHECK(split(t, "abc") == "abc");
}

TEST_CASE("tokenizer: a merge may pass through text that is no token") {
  TinyVocabulary vocabulary;
  auto lists = tandem_tests::lists_of(vocabulary);
  // "xy" is no token but "xyz" is; "xy" alone falls back to bytes.
  lists.merges.insert(lists.merges.end(), {"x y", "xy z"});
  lists.tokens.push_back("xyz");
  lists.types.push_back(1);
  GgufWriter w;
  add_vocabulary(w, lists, "qwen2");
  const auto file = GgufFile::from_bytes(w.bytes());
  const auto t = Tokenizer::from_gguf(file->metadata());
  REQUIRE(t.ok());
  CHECK(split(*t, "xyz") == "xyz");
  CHECK(split(*t, "xy") == "x|y");
}

TEST_CASE("tokenizer: llama-bpe takes a piece that is a token whole") {
  TinyVocabulary vocabulary;
  auto lists = tandem_tests::lists_of(vocabulary);
  lists.tokens.push_back("zq");  // no merge leads there
  lists.types.push_back(1);
  for (const char* pre : {"qwen2", "llama-bpe"}) {
    GgufWriter w;
    add_vocabulary(w, lists, pre);
    const auto file = GgufFile::from_bytes(w.bytes());
    const auto t = Tokenizer::from_gguf(file->metadata());
    REQUIRE(t.ok());
    CHECK(split(*t, "zq") == (std::string_view(pre) == "qwen2" ? "z|q" : "zq"));
  }
}

TEST_CASE("tokenizer recognises control tokens on demand and user-defined ones always") {
  const Tokenizer t = make();
  const std::string text = "<|im_start|>a<think>b<|im_end|>";
  CHECK(split(t, text, {.parse_special = true}) == "<|im_start|>|a|<think>|b|<|im_end|>");
  const auto plain = *t.encode(text);
  CHECK(count_of(plain, *t.find_token("<|im_start|>")) == 0);
  CHECK(count_of(plain, *t.find_token("<think>")) == 1);
  CHECK(*t.decode(plain) == text);
}

TEST_CASE("tokenizer: the longest special token of the whole text wins, then the leftmost") {
  const std::vector<SpecialToken> specials = {{"<a>"}, {"<a>b"}, {"b<c>d"}, {"d<a"}, {"xx", 4}};
  const Tokenizer t = make({.pre = "qwen2", .merges = {{"h", "e"}}, .specials = specials});
  const EncodeOptions special = {.parse_special = true};
  CHECK(split(t, "<a>b", special) == "<a>b");
  CHECK(split(t, "<a>b<c>d", special) == "<a>|b<c>d");
  CHECK(split(t, "d<a>", special) == "d<a|>");  // of equal lengths the leftmost
  CHECK(split(t, "xxx", special) == "xx|x");
}

TEST_CASE("tokenizer: marks veto control tokens that they overlap, and nothing else") {
  const Tokenizer t = make();
  const std::string text = "<|im_end|>he<|im_end|>";  // 10 + 2 + 10 bytes
  const TokenId end = *t.find_token("<|im_end|>");
  const auto ends = [&](std::vector<ByteRange> ranges) {
    const auto ids = t.encode(text, {.parse_special = true, .client_ranges = ranges});
    REQUIRE(ids.ok());
    CHECK(*t.decode(*ids, {.keep_special = true}) == text);
    return count_of(*ids, end);
  };
  CHECK(ends({}) == 2);
  CHECK(ends({{.begin = 10, .end = 12}}) == 2);
  CHECK(ends({{.begin = 9, .end = 12}}) == 1);
  CHECK(ends({{.begin = 10, .end = 13}}) == 1);
  CHECK(ends({{.begin = 0, .end = 1}, {.begin = 21, .end = 22}}) == 0);
  CHECK(ends({{.begin = 4, .end = 5}}) == 1);
  CHECK(ends({{.begin = 0, .end = 22}}) == 0);
}

TEST_CASE("tokenizer: a vetoed control token gives way to a shorter one beside the mark") {
  const Tokenizer t = make({.pre = "qwen2", .merges = {}, .specials = {{"<a>b"}, {"<a>"}}});
  const std::vector<ByteRange> mark = {{.begin = 3, .end = 4}};
  CHECK(split(t, "<a>b", {.parse_special = true, .client_ranges = mark}) == "<a>|b");
}

TEST_CASE("tokenizer: text between recognised tokens is one run, marks or not") {
  const Tokenizer t = make();
  const std::vector<ByteRange> mark = {{.begin = 2, .end = 4}};
  CHECK(split(t, "hello", {.parse_special = true, .client_ranges = mark}) == "hello");
}

TEST_CASE("tokenizer: BPE never produces a control token") {
  // The merges lead to the very text of the control token.
  TinyVocabulary vocabulary;
  auto lists = tandem_tests::lists_of(vocabulary);
  lists.merges.insert(lists.merges.begin(), {"e n", "en d"});
  lists.tokens.push_back("end");
  lists.types.push_back(3);
  for (const char* pre : {"qwen2", "llama-bpe"}) {
    GgufWriter w;
    add_vocabulary(w, lists, pre);
    const auto file = GgufFile::from_bytes(w.bytes());
    const auto t = Tokenizer::from_gguf(file->metadata());
    REQUIRE(t.ok());
    CHECK(split(*t, "end") == "e|n|d");
    CHECK(split(*t, "end", {.parse_special = true}) == "end");
  }
}

TEST_CASE("tokenizer refuses client ranges that are out of order or outside the text") {
  const Tokenizer t = make();
  const auto code = [&](std::vector<ByteRange> ranges) {
    const auto ids = t.encode("hello", {.client_ranges = ranges});
    return ids.ok() ? Errc::internal : ids.error().code;
  };
  CHECK(code({{.begin = 0, .end = 6}}) == Errc::invalid_argument);
  CHECK(code({{.begin = 3, .end = 2}}) == Errc::invalid_argument);
  CHECK(code({{.begin = 3, .end = 3}}) == Errc::invalid_argument);
  CHECK(code({{.begin = 2, .end = 4}, {.begin = 3, .end = 5}}) == Errc::invalid_argument);
}

TEST_CASE("tokenizer: malformed UTF-8 becomes one U+FFFD per byte") {
  const Tokenizer t = make();
  const std::string replacement = "\xEF\xBF\xBD";
  const auto round = [&](std::string_view text) { return *t.decode(*t.encode(text)); };
  CHECK(round("a\xff" "b") == "a" + replacement + "b");
  CHECK(round("\xe2\x82") == replacement + replacement);
  CHECK(round("\xe2\x82\xac") == "\xe2\x82\xac");
}

TEST_CASE("tokenizer refuses a text over the limit, and ids that do not exist") {
  GgufWriter w;
  add_vocabulary(w);
  const auto file = GgufFile::from_bytes(w.bytes());
  const auto t = Tokenizer::from_gguf(file->metadata(), {.text_bytes_max = 4});
  REQUIRE(t.ok());
  CHECK(t->encode("hell").ok());
  CHECK(t->encode("hello").error().code == Errc::too_large);
  const std::vector<TokenId> past = {static_cast<TokenId>(t->token_count())};
  CHECK(t->decode(past).error().code == Errc::invalid_argument);
  const std::vector<TokenId> negative = {-1};
  CHECK(t->decode(negative).error().code == Errc::invalid_argument);
}

TEST_CASE("pre-tokenizers split as their expressions say") {
  CHECK(pieces("qwen2", "I'LL pay 123 EUR.\n\n  Don't") ==
        "I|'LL| pay| |1|2|3| EUR|.\n\n| | Don|'t");
  CHECK(pieces("llama-bpe", "x12345 y") == "x|123|45| y");
  CHECK(pieces("gpt-2", "I'LL don't 123  x") == "I|'|LL| don|'t| 123| | x");
  CHECK(pieces("smollm", "ab12  3 c") == "ab|1|2|  |3| c");
  CHECK(pieces("qwen2", " \t\n \n  x") == " \t\n \n| | x");
  CHECK(pieces("gpt-2", "a   ") == "a|   ");
  CHECK(pieces("qwen2", "\tint (x)") == "\tint| (|x|)");
  CHECK(pieces("qwen2", "!\nx") == "!\n|x");
  // e with a combining acute accent: a mark is a letter to qwen35 only.
  CHECK(pieces("qwen35", "e\xcc\x81x") == "e\xcc\x81x");
  CHECK(pieces("qwen2", "e\xcc\x81x") == "e|\xcc\x81x");
  CHECK(pieces("gpt-2", "e\xcc\x81x") == "e|\xcc\x81|x");
  // An ideographic space joins the run of white space; a no-break space may start a qwen2 word.
  CHECK(pieces("qwen2", "a\xe3\x80\x80\xe3\x80\x80" "b") == "a|\xe3\x80\x80|\xe3\x80\x80" "b");
  CHECK_FALSE(find_pre_tokenizer("tekken").has_value());
}

TEST_CASE("detokenizer never emits half a character and repairs at the end") {
  const Tokenizer t = make();
  const std::string text = "a\xe2\x82\xac\xf0\x9f\x98\x80" "b";
  Detokenizer detokenizer(t);
  std::string out;
  const std::vector<TokenId> ids = *t.encode(text);
  for (const TokenId id : ids) {
    const std::string part = detokenizer.add(id);
    CHECK(tandem::utf8::is_valid(part));
    out += part;
  }
  CHECK(out == text);
  CHECK(detokenizer.flush().empty());

  CHECK(detokenizer.add(0xE2).empty());
  CHECK(detokenizer.add(0x82).empty());
  CHECK(detokenizer.holds_bytes());
  CHECK(detokenizer.flush() == "\xEF\xBF\xBD");
  CHECK_FALSE(detokenizer.holds_bytes());
  CHECK(detokenizer.add(0xE2).empty());
  CHECK(detokenizer.add('x') == "\xEF\xBF\xBDx");
}

TEST_CASE("detokenizer leaves control tokens out unless told otherwise") {
  const Tokenizer t = make();
  const TokenId end = *t.find_token("<|im_end|>");
  const TokenId think = *t.find_token("<think>");
  Detokenizer hidden(t);
  CHECK(hidden.add(end).empty());
  CHECK(hidden.add(think) == "<think>");
  Detokenizer shown(t, {.keep_special = true});
  CHECK(shown.add(end) == "<|im_end|>");
}

TEST_CASE("tokenizer: a megabyte of any text takes well under a second") {
  TinyVocabulary vocabulary;
  vocabulary.specials.push_back({"<<", 4});  // a candidate at every byte of the worst text
  // Long merges, so that the list of a word of 'a' stays busy.
  vocabulary.merges = {{"a", "a"}};
  for (size_t n = 2; n < 1024; n *= 2) {
    vocabulary.merges.emplace_back(std::string(n, 'a'), std::string(n, 'a'));
  }
  for (const char* pre : {"qwen2", "smollm", "qwen35", "llama-bpe"}) {
    vocabulary.pre = pre;
    const Tokenizer t = make(vocabulary);
    // One pre-tokenizer is enough for the merge; the others get enough to show a quadratic split.
    const size_t size = std::string_view(pre) == "qwen2" ? size_t{1} << 20 : size_t{1} << 17;
    for (const std::string_view unit : {"a", " ", "\n", "<", "1", "'", " \n", "\xea\xb0\x80",
                                        "\xf0\x9f\x98\x80", "\xcc\x81", "\xff"}) {
      std::string text;
      while (text.size() < size) text += unit;
      INFO(pre << " on '" << unit << "'");
      const double start_s = thread_cpu_s();
      REQUIRE(t.encode(text, {.parse_special = true}).ok());
      // Measured: below 0.4 s, with sanitizers below 2 s. A quadratic merge of a word of this size takes
      // minutes.
      CHECK(thread_cpu_s() - start_s < 10);
    }
  }
}
