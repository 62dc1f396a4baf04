// Reads the members of a JSON object into typed fields and remembers the first thing that is wrong,
// so that a decoder is a list of fields with one check at its end. For base/protocol*.cpp.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace tandem::protocol {

class FieldReader {
 public:
  explicit FieldReader(const Json& json);

  void boolean(std::string_view name, bool& out);
  void integer(std::string_view name, int64_t& out,
               int64_t least = std::numeric_limits<int64_t>::min(),
               int64_t most = std::numeric_limits<int64_t>::max());
  void number(std::string_view name, double& out, double least, double most);
  void string(std::string_view name, std::string& out);
  void optional_string(std::string_view name, std::string& out);
  // Fields that an older peer does not send: absent, they keep their value.
  void optional_boolean(std::string_view name, bool& out);
  void optional_integer(std::string_view name, int64_t& out, int64_t least, int64_t most);
  void optional_integer(std::string_view name, std::optional<int64_t>& out, int64_t least,
                        int64_t most);
  void optional_strings(std::string_view name, std::vector<std::string>& out);
  void token_id(std::string_view name, int32_t& out);
  void token_ids(std::string_view name, std::vector<int32_t>& out);
  void strings(std::string_view name, std::vector<std::string>& out);
  // Null when absent or JSON null; a wrong type is an error.
  const Json* optional_object(std::string_view name);
  const Json* optional_array(std::string_view name);
  const Json* required(std::string_view name);

  [[nodiscard]] Result<void> status() const { return status_; }

 private:
  void wrong(std::string_view name, std::string_view expected);

  const Json& json_;
  Result<void> status_;
};

Json token_ids_to_json(const std::vector<int32_t>& tokens);
// Any bytes as an array of 0..255: a token is not always valid UTF-8.
Json bytes_to_json(std::string_view bytes);
Result<std::string> bytes_from_json(const Json& json, std::string_view name);

}  // namespace tandem::protocol
