// Two kinds of input, by the first byte. Below 0xF0: a text for a small vocabulary, with options and
// marks; the ids must be valid, give the text back, and hold no control token where it is vetoed.
// Otherwise: a GGUF file whose metadata may make a tokenizer, which must then encode and decode.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "engine/gguf/gguf.h"
#include "engine/tokenizer/detokenizer.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/support/tiny_vocabulary.h"

namespace {

using tandem::engine::ByteRange;
using tandem::engine::Detokenizer;
using tandem::engine::EncodeOptions;
using tandem::engine::GgufFile;
using tandem::engine::GgufImage;
using tandem::engine::TokenId;
using tandem::engine::Tokenizer;

std::vector<Tokenizer> make_tokenizers() {
  std::vector<Tokenizer> out;
  for (const char* pre : {"gpt-2", "smollm", "qwen2", "qwen35", "llama-bpe"}) {
    tandem_tests::TinyVocabulary vocabulary;
    vocabulary.pre = pre;
    vocabulary.specials.insert(vocabulary.specials.end(),
                               {{"<a>"}, {"<a>b"}, {"b<a", 4}, {"<<", 4}, {"<<<"}});
    tandem_tests::GgufWriter writer;
    tandem_tests::add_vocabulary(writer, vocabulary);
    const auto file = GgufFile::from_bytes(writer.bytes());
    CHECK(file.ok());
    auto tokenizer = Tokenizer::from_gguf(file->metadata());
    CHECK(tokenizer.ok());
    out.push_back(*std::move(tokenizer));
  }
  return out;
}

bool marked(const std::vector<ByteRange>& ranges, size_t begin, size_t end) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const ByteRange& r) {
    return r.begin < end && begin < r.end;
  });
}

std::string detokenize(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(tokenizer, {.keep_special = true});
  std::string out;
  for (const TokenId id : ids) {
    const std::string part = detokenizer.add(id);
    CHECK(tandem::utf8::is_valid(part));
    out += part;
  }
  return out + detokenizer.flush();
}

void check_text(const Tokenizer& tokenizer, std::string_view text,
                const std::vector<ByteRange>& ranges, bool parse_special) {
  const EncodeOptions options = {.parse_special = parse_special, .client_ranges = ranges};
  const auto ids = tokenizer.encode(text, options);
  CHECK(ids.ok());
  for (const TokenId id : *ids) CHECK(tokenizer.is_valid(id));
  const auto back = tokenizer.decode(*ids, {.keep_special = true});
  CHECK(back.ok());
  CHECK(tandem::utf8::is_valid(*back) && detokenize(tokenizer, *ids) == *back);
  if (!tandem::utf8::is_valid(text)) return;
  CHECK(*back == text);
  size_t position = 0;
  for (const TokenId id : *ids) {
    const size_t end = position + tokenizer.token_bytes(id).size();
    CHECK(!tokenizer.is_control(id) || (parse_special && !marked(ranges, position, end)));
    position = end;
  }
}

// Pairs of bytes: gap and length of one range after another.
std::vector<ByteRange> take_ranges(std::string_view& input, size_t count) {
  std::string_view pairs = input.substr(0, std::min(input.size(), 2 * count));
  input.remove_prefix(pairs.size());
  std::vector<ByteRange> ranges;
  size_t end = 0;
  for (; pairs.size() >= 2; pairs.remove_prefix(2)) {
    const size_t begin = end + static_cast<uint8_t>(pairs[0]);
    end = begin + 1 + static_cast<uint8_t>(pairs[1]) % 16;
    if (end > input.size()) break;
    ranges.push_back({.begin = begin, .end = end});
  }
  return ranges;
}

void check_vocabulary(std::span<const std::byte> bytes) {
  const auto image = GgufImage::parse(bytes);
  if (!image.ok()) return;
  const auto tokenizer = Tokenizer::from_gguf(image->metadata());
  if (!tokenizer.ok()) return;
  for (const bool special : {false, true}) {
    const auto ids = tokenizer->encode("<|im_start|>hello  w\xc3\xa9 123\n\n \xff",
                                       {.parse_special = special, .add_special = special});
    CHECK(ids.ok());
    for (const TokenId id : *ids) CHECK(tokenizer->is_valid(id));
    CHECK(tokenizer->decode(*ids).ok());
  }
  for (const TokenId id : tokenizer->end_of_generation_tokens()) CHECK(tokenizer->is_valid(id));
  for (size_t i = 0; i < tokenizer->token_count(); ++i) {
    const std::string_view text = tokenizer->token_bytes(static_cast<TokenId>(i));
    CHECK(tokenizer->find_token(text).has_value());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<Tokenizer> tokenizers = make_tokenizers();
  if (size < 2) return 0;
  if (data[0] >= 0xF0) {
    // A copy of its own, so that views past the end are seen.
    const auto copy = std::make_unique<std::byte[]>(size - 1);
    std::copy_n(reinterpret_cast<const std::byte*>(data + 1), size - 1, copy.get());
    check_vocabulary({copy.get(), size - 1});
    return 0;
  }
  const Tokenizer& tokenizer = tokenizers[data[0] % tokenizers.size()];
  std::string_view input(reinterpret_cast<const char*>(data + 2), size - 2);
  const std::vector<ByteRange> ranges = take_ranges(input, data[1] >> 4);
  check_text(tokenizer, input, ranges, (data[1] & 1) != 0);
  return 0;
}
