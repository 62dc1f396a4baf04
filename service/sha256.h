// SHA-256 (libcrypto) and random bytes. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace tandem::service {

// 64 lower-case hex digits.
std::string sha256_hex(std::string_view bytes);

// Bytes of the kernel's generator, as lower-case hex digits. CHECKs that the kernel has them: a
// service that cannot make keys must not guess them.
std::string random_hex(size_t bytes);

// Time does not depend on where the two differ; the length may be seen.
bool equal_constant_time(std::string_view a, std::string_view b);

}  // namespace tandem::service
