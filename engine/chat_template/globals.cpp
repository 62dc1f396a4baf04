// Functions that every template can call.
#include <array>
#include <cstdio>
#include <string>

#include "engine/chat_template/arguments.h"
#include "engine/chat_template/evaluator.h"
#include "engine/chat_template/value_ops.h"

namespace tandem::engine {
namespace {

Result<TplValue> raise_exception(TplEval& eval, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"message"}, "raise_exception"));
  if (bound[0] == nullptr) return tpl_error("raise_exception needs a message");
  TRY_ASSIGN(const TplStr message, tpl_str(eval.heap(), *bound[0]));
  return make_error(Errc::invalid_argument, std::string(message.bytes), "messages");
}

Result<TplValue> name_space(TplEval& eval, const TplArgs& args) {
  TplNamespace* made = eval.heap().name_space();
  for (const TplValue& v : args.values) {
    if (!v.is(TplKind::dict)) return tpl_error("namespace takes names and dicts");
    for (const auto& [key, value] : v.dict->items) {
      TRY_ASSIGN(const TplStr name, tpl_string_arg(&key, "a namespace's name"));
      eval.heap().set(made, name.bytes, value);
    }
  }
  for (const auto& [name, value] : args.named) eval.heap().set(made, name, value);
  TplValue v;
  v.kind = TplKind::name_space;
  v.name_space = made;
  return v;
}

Result<TplValue> make_dict(TplEval& eval, const TplArgs& args) {
  if (args.values.size() > 1) return tpl_error("dict takes one dict and names");
  TplDict* made = eval.heap().dict();
  for (const TplValue& v : args.values) {
    if (!v.is(TplKind::dict)) return tpl_error("dict takes one dict and names");
    for (const auto& [key, value] : v.dict->items) eval.heap().put(made, key, value);
  }
  for (const auto& [name, value] : args.named) {
    eval.heap().put(made, eval.heap().string({.bytes = name}), value);
  }
  return TplValue::of(made);
}

Result<TplValue> range(TplEval& eval, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"start", "stop", "step"}, "range"));
  if (bound[0] == nullptr || !args.named.empty()) return tpl_error("range needs a number");
  TRY_ASSIGN(int64_t start, tpl_int_arg(bound[0], 0, "range's start"));
  TRY_ASSIGN(int64_t stop, tpl_int_arg(bound[1], 0, "range's stop"));
  TRY_ASSIGN(const int64_t step, tpl_int_arg(bound[2], 1, "range's step"));
  if (bound[1] == nullptr) {
    stop = start;
    start = 0;
  }
  if (step == 0) return tpl_error("range's step is zero");
  // The limit of Jinja's sandbox.
  constexpr size_t kItemsMax = 100'000;
  TplList* out = eval.heap().list(TplListKind::range);
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (out->items.size() == kItemsMax) {
      return tpl_error("range of more than " + std::to_string(kItemsMax) + " numbers");
    }
    if (!eval.heap().spend_steps(1)) return eval.heap().limit_error();
    eval.heap().push(out, TplValue::of(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return TplValue::of(out);
}

struct Civil {
  int64_t year = 1970;
  uint32_t month = 1;  // 1..12
  uint32_t day = 1;
  uint32_t weekday = 4;  // 0: Sunday
  uint32_t second_of_day = 0;
  uint32_t day_of_year = 1;
};

// Proleptic Gregorian calendar, counted in eras of 400 years that start on 1 March.
Civil civil_of(int64_t unix_s) {
  int64_t days = unix_s / 86400;
  int64_t rest = unix_s % 86400;
  if (rest < 0) {
    rest += 86400;
    --days;
  }
  Civil c;
  c.second_of_day = static_cast<uint32_t>(rest);
  c.weekday = static_cast<uint32_t>(((days + 4) % 7 + 7) % 7);
  const int64_t shifted = days + 719468;
  const int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
  const int64_t day_of_era = shifted - era * 146097;
  const int64_t year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const int64_t from_march = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t month = (5 * from_march + 2) / 153;
  c.day = static_cast<uint32_t>(from_march - (153 * month + 2) / 5 + 1);
  c.month = static_cast<uint32_t>(month < 10 ? month + 3 : month - 9);
  c.year = year_of_era + era * 400 + (c.month <= 2 ? 1 : 0);
  const bool leap = (c.year % 4 == 0 && c.year % 100 != 0) || c.year % 400 == 0;
  constexpr std::array<uint32_t, 12> kBefore = {0,   31,  59,  90,  120, 151,
                                                181, 212, 243, 273, 304, 334};
  c.day_of_year = kBefore[c.month - 1] + c.day + (leap && c.month > 2 ? 1 : 0);
  return c;
}

constexpr std::array<const char*, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};
constexpr std::array<const char*, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                              "Thursday", "Friday", "Saturday"};

std::string padded(int64_t value, int width) {
  std::array<char, 24> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%0*lld", width, static_cast<long long>(value));
  return buffer.data();
}

// False: not a directive that is known here.
bool append_directive(std::string& out, const Civil& c, char directive) {
  const uint32_t hour = c.second_of_day / 3600;
  const uint32_t hour_12 = hour % 12 == 0 ? 12 : hour % 12;
  switch (directive) {
    case 'd': out += padded(c.day, 2); return true;
    case 'e': out += (c.day < 10 ? " " : "") + std::to_string(c.day); return true;
    case 'm': out += padded(c.month, 2); return true;
    case 'b':
    case 'h': out += std::string(kMonths[c.month - 1]).substr(0, 3); return true;
    case 'B': out += kMonths[c.month - 1]; return true;
    case 'Y': out += std::to_string(c.year); return true;
    case 'y': out += padded(c.year % 100, 2); return true;
    case 'a': out += std::string(kDays[c.weekday]).substr(0, 3); return true;
    case 'A': out += kDays[c.weekday]; return true;
    case 'j': out += padded(c.day_of_year, 3); return true;
    case 'H': out += padded(hour, 2); return true;
    case 'I': out += padded(hour_12, 2); return true;
    case 'p': out += hour < 12 ? "AM" : "PM"; return true;
    case 'M': out += padded(c.second_of_day / 60 % 60, 2); return true;
    case 'S': out += padded(c.second_of_day % 60, 2); return true;
    case 'F': out += padded(c.year, 4) + "-" + padded(c.month, 2) + "-" + padded(c.day, 2);
      return true;
    case 'T': out += padded(hour, 2) + ":" + padded(c.second_of_day / 60 % 60, 2) + ":" +
                     padded(c.second_of_day % 60, 2);
      return true;
    case '%': out += '%'; return true;
    default: return false;
  }
}

Result<TplValue> strftime_now(TplEval& eval, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"format"}, "strftime_now"));
  TRY_ASSIGN(const TplStr format, tpl_string_arg(bound[0], "strftime_now's format"));
  const Civil c = civil_of(eval.now_unix_s());
  TplText text(eval.heap());
  eval.heap().spend_steps(format.bytes.size() / 4);
  for (size_t at = 0; at < format.bytes.size() && eval.heap().ok(); ++at) {
    if (format.bytes[at] != '%') {
      text.append(format.sub(at, 1));
      continue;
    }
    std::string directive;
    if (++at == format.bytes.size() || !append_directive(directive, c, format.bytes[at])) {
      return tpl_error("strftime_now does not know '%" +
                       std::string(format.bytes.substr(at, 1)) + "'");
    }
    text.append(directive, false);
  }
  return text.finish();
}

constexpr std::array kFunctions = std::to_array<TplFunction>({
    {"raise_exception", raise_exception},
    {"namespace", name_space},
    {"dict", make_dict},
    {"range", range},
    {"strftime_now", strftime_now},
});

}  // namespace

void tpl_add_globals(TplScope& scope) {
  for (const TplFunction& f : kFunctions) {
    TplValue v;
    v.kind = TplKind::function;
    v.function = &f;
    scope.set(f.name, v);
  }
}

}  // namespace tandem::engine
