// Vocabularies that must be refused, one test per reason, and what the metadata means.
#include "engine/gguf/gguf.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/tiny_vocabulary.h"

namespace {

using tandem::Errc;
using tandem::Result;
using tandem::engine::GgufFile;
using tandem::engine::TokenId;
using tandem::engine::Tokenizer;
using tandem::engine::TokenizerLimits;
using tandem::engine::TokenKind;
using tandem_tests::add_vocabulary;
using tandem_tests::GgufWriter;
using tandem_tests::lists_of;
using tandem_tests::TinyVocabulary;
using tandem_tests::TinyVocabularyLists;

Result<Tokenizer> load(const GgufWriter& writer, const TokenizerLimits& limits = {}) {
  const auto file = GgufFile::from_bytes(writer.bytes());
  REQUIRE(file.ok());
  return Tokenizer::from_gguf(file->metadata(), limits);
}

Result<Tokenizer> load(const TinyVocabularyLists& lists, const TokenizerLimits& limits = {}) {
  GgufWriter w;
  add_vocabulary(w, lists, "qwen2");
  return load(w, limits);
}

void check_refused(const Result<Tokenizer>& result, Errc code, const std::string& words) {
  REQUIRE_FALSE(result.ok());
  INFO(result.error().message);
  CHECK(result.error().code == code);
  CHECK(result.error().message.find(words) != std::string::npos);
}

}  // namespace

TEST_CASE("tokenizer refuses other kinds and unknown pre-tokenizers by name") {
  GgufWriter spm;
  spm.string("tokenizer.ggml.model", "llama");
  check_refused(load(spm), Errc::invalid_argument, "tokenizer kind llama");
  GgufWriter pre;
  add_vocabulary(pre, lists_of({}), "tekken");
  check_refused(load(pre), Errc::invalid_argument, "pre-tokenizer tekken");
  check_refused(load(GgufWriter()), Errc::not_found, "tokenizer.ggml.model");
}

TEST_CASE("tokenizer refuses an empty vocabulary and one over the cap") {
  check_refused(load(TinyVocabularyLists{}), Errc::corrupt, "empty");
  check_refused(load(lists_of({}), {.tokens_max = 100}), Errc::too_large, "the limit is 100");
  check_refused(load(lists_of({}), {.merges_max = 3}), Errc::too_large, "the limit is 3");
}

TEST_CASE("tokenizer refuses token types that do not fit") {
  auto lists = lists_of({});
  lists.types.pop_back();
  check_refused(load(lists), Errc::corrupt, "token types");
  lists = lists_of({});
  lists.types[7] = 0;
  check_refused(load(lists), Errc::corrupt, "the type of token 7");
  lists.types[7] = 7;
  check_refused(load(lists), Errc::corrupt, "the type of token 7");
}

TEST_CASE("tokenizer refuses tokens that are too long") {
  auto lists = lists_of({});
  lists.tokens[300 - 40] = std::string(5000, 'x');
  check_refused(load(lists), Errc::too_large, "5000");
  lists = lists_of({});
  lists.tokens.back() = std::string(257, 'x');  // special
  check_refused(load(lists), Errc::too_large, "257");
}

TEST_CASE("tokenizer refuses duplicate tokens") {
  auto lists = lists_of({});
  lists.tokens[260] = lists.tokens[258];
  check_refused(load(lists), Errc::corrupt, "tokens 258 and 260 are equal");
  lists = lists_of({});
  lists.tokens.back() = "he";  // a special token with the text of a normal one
  check_refused(load(lists), Errc::corrupt, "are equal");
}

TEST_CASE("tokenizer accepts a user-defined token that writes what a normal one writes") {
  auto lists = lists_of({});
  lists.tokens.push_back("  ");
  lists.types.push_back(4);
  lists.tokens.push_back(tandem_tests::byte_alphabet_text("  "));
  lists.types.push_back(1);
  const auto t = load(lists);
  REQUIRE(t.ok());
  CHECK(t->token_bytes(static_cast<TokenId>(lists.tokens.size()) - 1) == "  ");
  CHECK(t->token_kind(*t->find_token("  ")) == TokenKind::user_defined);
}

TEST_CASE("tokenizer refuses malformed merges") {
  for (const char* merge : {"ab", " b", "a ", "a b c", "", " ", "a  b"}) {
    auto lists = lists_of({});
    lists.merges.push_back(merge);
    INFO("merge '" << merge << "'");
    check_refused(load(lists), Errc::corrupt, "not two parts");
  }
  auto lists = lists_of({});
  lists.merges.emplace_back("a \xe4\xb8\xad");
  check_refused(load(lists), Errc::corrupt, "outside the byte alphabet");
}

TEST_CASE("tokenizer refuses special ids outside the vocabulary") {
  for (const char* key : {"bos", "eos", "eot", "eom"}) {
    GgufWriter w;
    add_vocabulary(w);
    w.u32("tokenizer.ggml." + std::string(key) + "_token_id", 1000000);
    check_refused(load(w), Errc::corrupt, "1000000");
  }
}

TEST_CASE("tokenizer refuses to add a BOS or EOS that the file does not name") {
  GgufWriter bos;
  add_vocabulary(bos).boolean("tokenizer.ggml.add_bos_token", true);
  check_refused(load(bos), Errc::corrupt, "bos_token_id");
  GgufWriter eos;
  add_vocabulary(eos).boolean("tokenizer.ggml.add_eos_token", true);
  check_refused(load(eos), Errc::corrupt, "eos_token_id");
}

TEST_CASE("tokenizer adds BOS and EOS with add_special only") {
  GgufWriter w;
  add_vocabulary(w).u32("tokenizer.ggml.bos_token_id", 5).u32("tokenizer.ggml.eos_token_id", 6);
  w.boolean("tokenizer.ggml.add_bos_token", true).boolean("tokenizer.ggml.add_eos_token", true);
  const auto t = load(w);
  REQUIRE(t.ok());
  CHECK(*t->encode("a") == std::vector<TokenId>{'a'});
  CHECK(*t->encode("a", {.add_special = true}) == std::vector<TokenId>{5, 'a', 6});
  CHECK(t->adds_bos());
  CHECK(t->bos_token() == 5);
}

TEST_CASE("tokenizer: llama-bpe adds BOS unless the file says no") {
  for (const bool told : {false, true}) {
    GgufWriter w;
    add_vocabulary(w, lists_of({}), "llama-bpe").u32("tokenizer.ggml.bos_token_id", 5);
    if (told) w.boolean("tokenizer.ggml.add_bos_token", false);
    CHECK(load(w)->adds_bos() == !told);
  }
}

TEST_CASE("tokenizer: the tokens that end an answer") {
  TinyVocabulary vocabulary;
  vocabulary.specials = {{"<|im_end|>"}, {"<|endoftext|>"}, {"</s>", 1}, {"<|end|>"}, {"<x>"}};
  GgufWriter w;
  add_vocabulary(w, vocabulary).u32("tokenizer.ggml.eos_token_id", 65);
  w.u32("tokenizer.ggml.eot_token_id", 66).u32("tokenizer.ggml.eom_token_id", 65);
  const auto t = load(w);
  REQUIRE(t.ok());
  const std::vector<TokenId> wanted = {65, 66, *t->find_token("<|im_end|>"),
                                       *t->find_token("<|endoftext|>"), *t->find_token("<|end|>")};
  const auto ends = t->end_of_generation_tokens();
  CHECK(std::vector<TokenId>(ends.begin(), ends.end()) == wanted);
  CHECK(t->is_end_of_generation(66));
  CHECK_FALSE(t->is_end_of_generation(*t->find_token("</s>")));
}

TEST_CASE("tokenizer: <|end|> ends a message, not the answer, beside <|return|>") {
  TinyVocabulary vocabulary;
  vocabulary.specials = {{"<|return|>"}, {"<|end|>"}};
  GgufWriter w;
  add_vocabulary(w, vocabulary);
  const auto t = load(w);
  CHECK(t->is_end_of_generation(*t->find_token("<|return|>")));
  CHECK_FALSE(t->is_end_of_generation(*t->find_token("<|end|>")));
}

TEST_CASE("tokenizer: an end token that the file calls normal is recognised as control") {
  TinyVocabulary vocabulary;
  vocabulary.specials = {{"<|im_end|>", 1}, {"</s>", 1}};
  GgufWriter w;
  add_vocabulary(w, vocabulary);
  const auto t = load(w);
  const TokenId end = *t->find_token("<|im_end|>");
  CHECK(t->is_control(end));
  CHECK(*t->encode("<|im_end|>", {.parse_special = true}) == std::vector<TokenId>{end});
  CHECK(t->encode("<|im_end|>")->size() > 1);
  CHECK(t->encode("</s>", {.parse_special = true})->size() == 1);
  CHECK_FALSE(t->is_control(*t->find_token("</s>")));
}
