#include "service/sampling_row.h"

#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace tandem::service {
namespace {

using policies::SamplingRow;

template <auto kField>
using ValueOf =
    typename std::remove_cvref_t<decltype(std::declval<SamplingRow&>().*kField)>::value_type;

template <auto kField>
std::optional<double> get(const SamplingRow& row) {
  const auto& value = row.*kField;
  return value.has_value() ? std::optional(static_cast<double>(*value)) : std::nullopt;
}

template <auto kField>
void set(SamplingRow& row, double value) {
  row.*kField = static_cast<ValueOf<kField>>(value);
}

template <auto kField>
constexpr SamplingField field(std::string_view name, double least, double most) {
  constexpr bool kWhole = std::is_same_v<ValueOf<kField>, int64_t>;
  return {name, least, most, kWhole, get<kField>, set<kField>};
}

// The ranges of a request (R27), but for what a row cannot say: top_p 0 means greedy there.
constexpr auto kFields = std::to_array<SamplingField>(
    {field<&SamplingRow::temperature>("temperature", 0, 2),
     field<&SamplingRow::top_p>("top_p", 0.001, 1),
     field<&SamplingRow::top_k>("top_k", 0, 1'000'000),
     field<&SamplingRow::min_p>("min_p", 0, 1),
     field<&SamplingRow::presence_penalty>("presence_penalty", -2, 2),
     field<&SamplingRow::repetition_penalty>("repetition_penalty", 0.01, 10)});

std::string number_text(const SamplingField& field, double value) {
  if (field.whole) return std::to_string(static_cast<int64_t>(value));
  std::string text;
  append_json_number(text, value);
  return text;
}

std::string joined(const SamplingRow& row, std::string_view between) {
  std::string text;
  for (const SamplingField& field : kFields) {
    const auto value = field.get(row);
    if (!value.has_value()) continue;
    if (!text.empty()) text += ", ";
    text.append(field.name).append(between).append(number_text(field, *value));
  }
  return text;
}

}  // namespace

std::span<const SamplingField> sampling_fields() { return kFields; }

std::string range_of(const SamplingField& field) {
  const auto short_text = [](double bound) {
    const auto whole = static_cast<int64_t>(bound);
    if (static_cast<double>(whole) == bound) return std::to_string(whole);
    std::string text;
    append_json_number(text, bound);
    return text;
  };
  return short_text(field.least) + " to " + short_text(field.most);
}

std::string sampling_ranges() {
  std::string text;
  for (const SamplingField& field : kFields) {
    text += text.empty() ? "table of " : ", ";
    text.append(field.name).append(" ").append(range_of(field));
  }
  return text;
}

std::string row_text(const SamplingRow& row) {
  std::string text = joined(row, " ");
  return text.empty() ? "neutral" : text;
}

std::string row_toml(const std::optional<SamplingRow>& row) {
  const std::string text = row.has_value() ? joined(*row, " = ") : std::string();
  return text.empty() ? "{}" : "{ " + text + " }";
}

Json row_json(const std::optional<SamplingRow>& row) {
  Json json = Json::object();
  if (!row.has_value()) return json;
  for (const SamplingField& field : kFields) {
    const auto value = field.get(*row);
    if (!value.has_value()) continue;
    json.set(field.name, field.whole ? Json(static_cast<int64_t>(*value)) : Json(*value));
  }
  return json;
}

}  // namespace tandem::service
