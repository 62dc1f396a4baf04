// A stable sort whose comparison may fail; the first failure ends it. (std::stable_sort cannot stop,
// and std::sort must not be given a comparison that changes its mind.) Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tandem::engine {

// less(a, b) returns Result<bool>.
template <typename T, typename Less>
Result<void> tpl_merge_sort(std::vector<T>& items, Less less) {
  std::vector<T> merged;
  merged.reserve(items.size());
  for (size_t width = 1; width < items.size(); width *= 2) {
    merged.clear();
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, items.size());
      const size_t end = std::min(begin + 2 * width, items.size());
      size_t left = begin;
      size_t right = middle;
      while (left < middle && right < end) {
        TRY_ASSIGN(const bool take_right, less(items[right], items[left]));
        merged.push_back(std::move(take_right ? items[right++] : items[left++]));
      }
      while (left < middle) merged.push_back(std::move(items[left++]));
      while (right < end) merged.push_back(std::move(items[right++]));
    }
    std::swap(items, merged);
  }
  return {};
}

}  // namespace tandem::engine
