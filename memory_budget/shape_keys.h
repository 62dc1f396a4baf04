// Typed access to the JSON of `tandem-engine --describe`, for shape.cpp only: every number is checked
// against its range before it is used, and an error names the field. Pure; any thread.
// Errors: corrupt, with the field as Error::path.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace tandem::budget {

Error shape_error(const std::string& field, const std::string& what);

// The keys of the architecture, without its prefix.
class ShapeKeys {
 public:
  struct Range {
    int64_t min = 0;
    int64_t max = 0;
  };

  explicit ShapeKeys(const Json& values) : values_(values) {}

  [[nodiscard]] bool has(std::string_view key) const { return values_.find(key) != nullptr; }
  [[nodiscard]] bool is_list(std::string_view key) const;
  [[nodiscard]] int64_t list_size(std::string_view key) const;  // of a list
  [[nodiscard]] Error missing(std::string_view key) const;

  [[nodiscard]] Result<int64_t> integer(std::string_view key, Range range) const;
  // `fallback` stands for a missing key and must lie in the range as well.
  [[nodiscard]] Result<int64_t> integer_or(std::string_view key, int64_t fallback,
                                           Range range) const;
  // One number for all, or a list of exactly `count`.
  [[nodiscard]] Result<std::vector<int64_t>> list(std::string_view key, int64_t count,
                                                  Range range) const;

 private:
  const Json& values_;
};

// `path` is the whole path of the field, its last part the member of `object`.
Result<int64_t> field_integer(const Json& object, const std::string& path,
                              ShapeKeys::Range range);
Result<std::string> field_text(const Json& object, const std::string& path);

}  // namespace tandem::budget
