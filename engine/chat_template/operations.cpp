// Arithmetic, comparison, subscripts and slices with Python's rules. Integers are 64 bits: a result
// outside of them is an error.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "base/utf8.h"
#include "engine/chat_template/evaluator.h"
#include "engine/chat_template/text_rules.h"
#include "engine/chat_template/value_ops.h"

namespace tandem::engine {
namespace {

const char* op_name(TplOp op) {
  switch (op) {
    case TplOp::add: return "+";
    case TplOp::subtract: return "-";
    case TplOp::multiply: return "*";
    case TplOp::divide: return "/";
    case TplOp::floor_divide: return "//";
    case TplOp::modulo: return "%";
    case TplOp::power: return "**";
    case TplOp::equal:
    case TplOp::not_equal:
    case TplOp::less:
    case TplOp::less_equal:
    case TplOp::greater:
    case TplOp::greater_equal:
    case TplOp::in:
    case TplOp::not_in: break;
  }
  return "?";
}

Error out_of_range() { return tpl_error("integer out of range"); }
Error zero_division() { return tpl_error("division by zero"); }

Result<TplValue> int_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  // |base| <= 1 never overflows, so the loop could be long: only the parity matters.
  if (base == 0 || base == 1) return TplValue::of(exponent == 0 ? int64_t{1} : base);
  if (base == -1) return TplValue::of(exponent % 2 == 0 ? int64_t{1} : int64_t{-1});
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) return out_of_range();
  }
  return TplValue::of(result);
}

// Quotient rounded down, remainder with the sign of the divisor.
Result<TplValue> int_floor(TplOp op, int64_t a, int64_t b) {
  if (b == 0) return zero_division();
  if (b == -1) {  // the one quotient that overflows
    if (op == TplOp::modulo) return TplValue::of(int64_t{0});
    if (a == std::numeric_limits<int64_t>::min()) return out_of_range();
  }
  int64_t quotient = a / b;
  int64_t rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    --quotient;
    rest += b;
  }
  return TplValue::of(op == TplOp::modulo ? rest : quotient);
}

Result<TplValue> int_binary(TplOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case TplOp::add:
      if (__builtin_add_overflow(a, b, &result)) return out_of_range();
      return TplValue::of(result);
    case TplOp::subtract:
      if (__builtin_sub_overflow(a, b, &result)) return out_of_range();
      return TplValue::of(result);
    case TplOp::multiply:
      if (__builtin_mul_overflow(a, b, &result)) return out_of_range();
      return TplValue::of(result);
    case TplOp::divide:
      if (b == 0) return zero_division();
      return TplValue::of(static_cast<double>(a) / static_cast<double>(b));
    case TplOp::power:
      if (b >= 0) return int_power(a, b);
      if (a == 0) return zero_division();
      return TplValue::of(std::pow(static_cast<double>(a), static_cast<double>(b)));
    default: return int_floor(op, a, b);
  }
}

Result<TplValue> real_binary(TplOp op, double a, double b) {
  switch (op) {
    case TplOp::add: return TplValue::of(a + b);
    case TplOp::subtract: return TplValue::of(a - b);
    case TplOp::multiply: return TplValue::of(a * b);
    case TplOp::power: {
      const double result = std::pow(a, b);
      if (!std::isfinite(result) && std::isfinite(a) && std::isfinite(b)) return out_of_range();
      return TplValue::of(result);
    }
    default: break;
  }
  if (b == 0) return zero_division();
  if (op == TplOp::divide) return TplValue::of(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (op == TplOp::modulo) return TplValue::of(rest == 0 ? std::copysign(0.0, b) : rest);
  return TplValue::of(std::round((a - rest) / b));
}

Result<TplValue> repeat(TplHeap& heap, const TplValue& subject, int64_t count) {
  count = std::max<int64_t>(count, 0);
  if (subject.is(TplKind::string)) {
    TplText out(heap);
    for (int64_t i = 0; i < count && !subject.bytes().empty() && heap.spend_steps(1); ++i) {
      out.append(*subject.string);
    }
    return out.finish();
  }
  TplList* out = heap.list(subject.list->kind);
  for (int64_t i = 0; i < count && !subject.list->items.empty() && heap.spend_steps(1); ++i) {
    for (const TplValue& v : subject.list->items) heap.push(out, v);
  }
  return TplValue::of(out);
}

bool is_sequence(const TplValue& v) {
  return v.is(TplKind::list) &&
         (v.list->kind == TplListKind::list || v.list->kind == TplListKind::tuple);
}

Result<std::optional<int64_t>> slice_bound(const TplValue& v) {
  if (v.is(TplKind::none)) return std::optional<int64_t>();
  if (v.is_int()) return std::optional<int64_t>(v.as_int());
  return tpl_error(std::string("slice bound is ") + tpl_type_name(v));
}

// Python's PySlice_AdjustIndices.
int64_t clamp_bound(int64_t bound, int64_t length, bool backwards) {
  const int64_t low = backwards ? -1 : 0;
  const int64_t high = backwards ? length - 1 : length;
  if (bound < 0) bound = bound < -length ? low : bound + length;
  return std::clamp(bound, low, std::max(low, high));
}

struct SliceRange {
  int64_t start = 0;
  int64_t count = 0;
  int64_t step = 1;
};

Result<SliceRange> slice_range(int64_t length, const TplValue& start, const TplValue& stop,
                               const TplValue& step) {
  TRY_ASSIGN(const std::optional<int64_t> first, slice_bound(start));
  TRY_ASSIGN(const std::optional<int64_t> last, slice_bound(stop));
  TRY_ASSIGN(const std::optional<int64_t> stride, slice_bound(step));
  SliceRange range{.start = 0, .count = 0, .step = stride.value_or(1)};
  if (range.step == 0) return tpl_error("slice step is zero");
  // Strides beyond any length act alike; this keeps the sums below in range.
  range.step = std::clamp<int64_t>(range.step, -(int64_t{1} << 40), int64_t{1} << 40);
  const bool backwards = range.step < 0;
  range.start = clamp_bound(first.value_or(backwards ? length - 1 : 0), length, backwards);
  if (!first && backwards) range.start = length - 1;
  int64_t end = backwards ? -1 : length;
  if (last) end = clamp_bound(*last, length, backwards);
  const int64_t distance = backwards ? range.start - end : end - range.start;
  const int64_t stride_size = backwards ? -range.step : range.step;
  if (distance > 0) range.count = (distance - 1) / stride_size + 1;
  return range;
}

TplValue slice_string(TplHeap& heap, const TplStr& s, const SliceRange& range) {
  if (range.step == 1) {
    const size_t begin = code_point_offset(s.bytes, static_cast<size_t>(range.start));
    const std::string_view rest = s.bytes.substr(begin);
    return heap.string(s.sub(begin, code_point_offset(rest, static_cast<size_t>(range.count))));
  }
  std::vector<size_t> starts;  // of each code point, and the end
  if (!heap.spend_bytes(s.bytes.size() * sizeof(size_t))) return heap.string({});
  for (size_t at = 0; at < s.bytes.size();) {
    starts.push_back(at);
    at += utf8::decode(s.bytes.substr(at)).length;
  }
  starts.push_back(s.bytes.size());
  TplText out(heap);
  for (int64_t i = 0; i < range.count; ++i) {
    const auto index = static_cast<size_t>(range.start + i * range.step);
    out.append(s.sub(starts[index], starts[index + 1] - starts[index]));
  }
  return out.finish();
}

}  // namespace

Result<TplValue> tpl_binary(TplHeap& heap, TplOp op, const TplValue& a, const TplValue& b) {
  if (a.is_int() && b.is_int()) return int_binary(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return real_binary(op, a.as_real(), b.as_real());
  if (op == TplOp::add && a.is(TplKind::string) && b.is(TplKind::string)) {
    TplText out(heap);
    out.append(*a.string);
    out.append(*b.string);
    return out.finish();
  }
  if (op == TplOp::add && is_sequence(a) && is_sequence(b) && a.list->kind == b.list->kind) {
    TplList* out = heap.list(a.list->kind);
    heap.spend_steps(a.list->items.size() + b.list->items.size());
    for (const TplValue& v : a.list->items) heap.push(out, v);
    for (const TplValue& v : b.list->items) heap.push(out, v);
    return TplValue::of(out);
  }
  if (op == TplOp::multiply) {
    const auto repeats = [](const TplValue& v) { return v.is(TplKind::string) || is_sequence(v); };
    if (repeats(a) && b.is_int()) return repeat(heap, a, b.as_int());
    if (repeats(b) && a.is_int()) return repeat(heap, b, a.as_int());
  }
  return tpl_error(std::string("operator ") + op_name(op) + " does not work on " +
                   tpl_type_name(a) + " and " + tpl_type_name(b));
}

Result<bool> tpl_compare(TplHeap& heap, TplOp op, const TplValue& a, const TplValue& b) {
  switch (op) {
    case TplOp::equal: return tpl_equal(heap, a, b);
    case TplOp::not_equal: return !tpl_equal(heap, a, b);
    case TplOp::less: return tpl_less(heap, a, b);
    case TplOp::greater: return tpl_less(heap, b, a);
    case TplOp::in: return tpl_contains(heap, b, a);
    case TplOp::not_in: {
      TRY_ASSIGN(const bool found, tpl_contains(heap, b, a));
      return !found;
    }
    default: break;
  }
  const bool greater = op == TplOp::greater_equal;
  TRY_ASSIGN(const bool less, greater ? tpl_less(heap, b, a) : tpl_less(heap, a, b));
  return less || tpl_equal(heap, a, b);
}

Result<TplValue> tpl_slice(TplHeap& heap, const TplValue& subject, const TplValue& start,
                           const TplValue& stop, const TplValue& step) {
  const bool list = subject.is(TplKind::list) && subject.list->kind != TplListKind::view &&
                    subject.list->kind != TplListKind::generator;
  if (!list && !subject.is(TplKind::string)) {
    return tpl_error(std::string(tpl_type_name(subject)) + " cannot be sliced");
  }
  TRY_ASSIGN(const int64_t length, tpl_length(heap, subject));
  TRY_ASSIGN(const SliceRange range, slice_range(length, start, stop, step));
  heap.spend_steps(static_cast<size_t>(range.count) / (list ? 1 : 64));
  if (!list) return slice_string(heap, *subject.string, range);
  TplList* out = heap.list(subject.list->kind);
  for (int64_t i = 0; i < range.count; ++i) {
    heap.push(out, subject.list->items[static_cast<size_t>(range.start + i * range.step)]);
  }
  return TplValue::of(out);
}

Result<TplValue> tpl_index(TplHeap& heap, const TplValue& subject, const TplValue& index) {
  if (!index.is_int()) return heap.undefined("item");
  int64_t at = index.as_int();
  if (subject.is(TplKind::list)) {
    const TplList& list = *subject.list;
    if (list.kind == TplListKind::view || list.kind == TplListKind::generator) {
      return heap.undefined("item");
    }
    const auto length = static_cast<int64_t>(list.items.size());
    if (at < 0) at += length;
    if (at < 0 || at >= length) return heap.undefined("item");
    return list.items[static_cast<size_t>(at)];
  }
  if (subject.is(TplKind::string)) {
    TRY_ASSIGN(const int64_t length, tpl_length(heap, subject));
    if (at < 0) at += length;
    if (at < 0 || at >= length) return heap.undefined("item");
    return slice_string(heap, *subject.string, {.start = at, .count = 1, .step = 1});
  }
  return heap.undefined("item");
}

}  // namespace tandem::engine
