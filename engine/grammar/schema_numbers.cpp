#include "engine/grammar/schema_numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

#include "base/check.h"

namespace tandem::engine {
namespace {

constexpr int kDigitsMax = 15;
constexpr double kLargest = 999'999'999'999'999.0;
// A state for each remainder. Factors of powers of ten need few: their last digits decide.
constexpr int64_t kMultipleMax = 128;
constexpr int64_t kDecimalMultipleMax = 1'000'000;
constexpr int64_t kPowerOfTen = 1'000'000'000'000'000;

using Bound = NumberFacts::Bound;

// A bound that is not negative, as digits.
struct Digits {
  std::string whole;     // without leading zeros; "0" at least
  std::string fraction;  // may be empty
  bool open = false;
};

Digits digits_of(const Bound& bound) {
  std::array<char, 512> text{};
  const auto written = std::to_chars(text.data(), text.data() + text.size(), std::abs(bound.value),
                                     std::chars_format::fixed);
  CHECK(written.ec == std::errc());
  const std::string_view all(text.data(), static_cast<size_t>(written.ptr - text.data()));
  const size_t point = std::min(all.find('.'), all.size());
  Digits out;
  out.whole = all.substr(0, point);
  if (point < all.size()) out.fraction = all.substr(point + 1);
  out.open = bound.open;
  return out;
}

char digit_at(const std::string& digits, size_t index) {
  return index < digits.size() ? digits[index] : '0';
}

bool zeros_from(const std::string& digits, size_t index) {
  return digits.find_first_not_of('0', std::min(index, digits.size())) == std::string::npos;
}

// Texts of magnitudes between two bounds, both of which may be missing.
class MagnitudeNetwork {
 public:
  MagnitudeNetwork(TextParts& parts, const Bound* least, const Bound* most, bool fractions,
                   int64_t multiple)
      : parts_(parts), fractions_(fractions), multiple_(multiple) {
    if (least != nullptr && (least->value != 0 || least->open)) least_ = digits_of(*least);
    if (most != nullptr) most_ = digits_of(*most);
  }

  GrammarPart build() {
    network_.state_count = 1;
    for (int length = 1; length <= kDigitsMax; ++length) start(length);
    for (size_t i = 0; i < open_.size(); ++i) {  // grows on the way
      const Place place = open_[i];
      const uint32_t state = states_.at(place);
      if (place.left > 0) {
        add_digits(place, state, !place.in_fraction && place.position == 0 && place.length > 1);
      }
      if (place.in_fraction ? place.position > 0 : place.left == 0) {
        if (may_end(place)) network_.ends.push_back(state);
      }
      if (!place.in_fraction && place.left == 0 && fractions_ && place.length < kDigitsMax) {
        Place next = place;
        next.in_fraction = true;
        next.position = 0;
        next.left = kDigitsMax - place.length;
        network_.moves.push_back({state, parts_.byte('.'), state_of(next)});
      }
    }
    return parts_.builder().network(network_);
  }

 private:
  // `position`: digits read of this half; `left`: digits that may (behind the point) or must follow.
  struct Place {
    bool in_fraction = false;
    int length = 0;  // of the whole number
    int position = 0;
    int left = 0;
    bool at_least = false;  // all digits so far are those of the lower bound
    bool at_most = false;
    int64_t remainder = 0;  // of the number as if zeros followed
    auto operator<=>(const Place&) const = default;
  };

  void start(int length) {
    const auto size = static_cast<size_t>(length);
    if (least_.has_value() && least_->whole.size() > size) return;
    if (most_.has_value() && most_->whole.size() < size) return;
    Place place;
    place.length = length;
    place.left = length;
    place.at_least = least_.has_value() && least_->whole.size() == size;
    place.at_most = most_.has_value() && most_->whole.size() == size;
    network_.moves.push_back({0, parts_.builder().empty(), state_of(place)});
  }

  uint32_t state_of(Place place) {
    // Once away from both bounds only what is left matters.
    if (!place.at_least && !place.at_most && place.position > 0) {
      if (place.in_fraction || !fractions_) place.length = kDigitsMax;
      place.position = 1;
    }
    const auto [found, fresh] = states_.try_emplace(place, network_.state_count);
    if (fresh) {
      ++network_.state_count;
      open_.push_back(place);
    }
    return found->second;
  }

  void add_digits(const Place& place, uint32_t state, bool no_zero) {
    std::map<uint32_t, ByteSet> targets;
    const auto index = static_cast<size_t>(place.position);
    for (char digit = no_zero ? '1' : '0'; digit <= '9'; ++digit) {
      Place next = place;
      if (place.at_least) {
        const char bound = digit_at(place.in_fraction ? least_->fraction : least_->whole, index);
        if (digit < bound) continue;
        next.at_least = digit == bound;
      }
      if (place.at_most) {
        const char bound = digit_at(place.in_fraction ? most_->fraction : most_->whole, index);
        if (digit > bound) continue;
        next.at_most = digit == bound;
      }
      ++next.position;
      --next.left;
      if (multiple_ > 1 && !add_to_remainder(next, digit - '0')) continue;
      targets[state_of(next)].add(static_cast<uint8_t>(digit));
    }
    for (const auto& [target, set] : targets) {
      network_.moves.push_back({state, parts_.bytes(set), target});
    }
  }

  // False: no digits to come make a multiple of it.
  bool add_to_remainder(Place& place, int64_t digit) const {
    int64_t power = 1;
    for (int i = 0; i < place.left; ++i) power *= 10;
    place.remainder = (place.remainder + digit * (power % multiple_)) % multiple_;
    return (multiple_ - place.remainder) % multiple_ < power;
  }

  // The number that was read lies within the bounds.
  [[nodiscard]] bool may_end(const Place& place) const {
    if (place.remainder != 0) return false;
    const size_t read = place.in_fraction ? static_cast<size_t>(place.position) : 0;
    if (place.at_least && (least_->open || !zeros_from(least_->fraction, read))) return false;
    return !place.at_most || !most_->open || !zeros_from(most_->fraction, read);
  }

  TextParts& parts_;
  bool fractions_;
  int64_t multiple_;
  std::optional<Digits> least_;
  std::optional<Digits> most_;
  GrammarNetwork network_;
  std::map<Place, uint32_t> states_;
  std::vector<Place> open_;
};

GrammarPart digits_part(TextParts& parts, int64_t least, int64_t most) {
  ByteSet digits;
  digits.add_range('0', '9');
  return parts.builder().repeat(parts.bytes(digits), least, most);
}

// Without bounds: -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?, each run of digits limited.
GrammarPart free_number(TextParts& parts, bool fractions) {
  GrammarBuilder& builder = parts.builder();
  ByteSet first;
  first.add_range('1', '9');
  ByteSet exponent_mark;
  exponent_mark.add('e');
  exponent_mark.add('E');
  ByteSet sign;
  sign.add('+');
  sign.add('-');
  const GrammarPart positive =
      parts.sequence({parts.bytes(first), digits_part(parts, 0, kDigitsMax - 1)});
  const GrammarPart minus = builder.optional(parts.byte('-'));
  if (!fractions) return parts.choice({parts.byte('0'), parts.sequence({minus, positive})});
  return parts.sequence(
      {minus, parts.choice({parts.byte('0'), positive}),
       builder.optional(parts.sequence({parts.byte('.'), digits_part(parts, 1, kDigitsMax)})),
       builder.optional(parts.sequence({parts.bytes(exponent_mark),
                                        builder.optional(parts.bytes(sign)),
                                        digits_part(parts, 1, 2)}))});
}

Result<int64_t> common_multiple(const std::vector<double>& factors) {
  const auto fits = [](int64_t multiple) {
    return multiple <= kMultipleMax ||
           (multiple <= kDecimalMultipleMax && kPowerOfTen % multiple == 0);
  };
  int64_t multiple = 1;
  for (const double factor : factors) {
    const bool whole = std::floor(factor) == factor && factor <= static_cast<double>(kDecimalMultipleMax);
    if (whole && fits(multiple)) multiple = std::lcm(multiple, static_cast<int64_t>(factor));
    if (whole && fits(multiple)) continue;
    return make_error(Errc::invalid_argument,
                      "only integers up to " + std::to_string(kMultipleMax) + ", and factors of powers of ten up to " +
                          std::to_string(kDecimalMultipleMax));
  }
  return multiple;
}

}  // namespace

Result<GrammarPart> number_part(TextParts& parts, const NumberFacts& facts, bool fractions) {
  TRY_ASSIGN(const int64_t multiple, common_multiple(facts.multiples));
  if (!facts.multiples.empty()) fractions = false;
  std::optional<Bound> least = facts.least;
  std::optional<Bound> most = facts.most;
  if ((least.has_value() && least->value > kLargest) ||
      (most.has_value() && most->value < -kLargest)) {
    return make_error(Errc::invalid_argument, "numbers have at most 15 digits");
  }
  // The limit of digits is a bound as well.
  if (least.has_value() && least->value < -kLargest) least.reset();
  if (most.has_value() && most->value > kLargest) most.reset();
  if (!least.has_value() && !most.has_value() && multiple == 1) return free_number(parts, fractions);

  std::vector<GrammarPart> choices;
  if (!most.has_value() || most->value >= 0) {
    const Bound zero;
    const Bound* from = least.has_value() && least->value >= 0 ? &*least : &zero;
    choices.push_back(MagnitudeNetwork(parts, from, most.has_value() ? &*most : nullptr, fractions,
                                       multiple).build());
  }
  if (!least.has_value() || least->value < 0) {
    const Bound zero = {0, true};
    const Bound* from = most.has_value() && most->value < 0 ? &*most : &zero;
    choices.push_back(parts.sequence(
        {parts.byte('-'), MagnitudeNetwork(parts, from, least.has_value() ? &*least : nullptr,
                                           fractions, multiple).build()}));
  }
  return parts.builder().choice(choices);
}

}  // namespace tandem::engine
