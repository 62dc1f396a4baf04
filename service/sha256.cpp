#include "service/sha256.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/random.h>

#include <array>

#include "base/check.h"

namespace tandem::service {
namespace {

std::string hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  ::SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return hex(std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

std::string random_hex(size_t bytes) {
  std::string raw(bytes, '\0');
  CHECK(bytes <= 256);  // up to which getrandom gives all or nothing
  CHECK(::getrandom(raw.data(), raw.size(), 0) == static_cast<ssize_t>(raw.size()));
  return hex(raw);
}

bool equal_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tandem::service
