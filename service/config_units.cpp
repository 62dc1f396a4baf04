#include "service/config_units.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/json.h"
#include "policies/sanitize/receipt.h"
#include "service/config_keys.h"

namespace tandem::service {
namespace {

struct Unit {
  std::string_view name;
  int64_t factor;
};

constexpr auto kByteUnits = std::to_array<Unit>({{"TiB", int64_t{1} << 40},
                                                 {"GiB", int64_t{1} << 30},
                                                 {"MiB", int64_t{1} << 20},
                                                 {"KiB", int64_t{1} << 10},
                                                 {"B", 1}});
constexpr auto kTimeUnits =
    std::to_array<Unit>({{"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}, {"ms", 1}});

Result<int64_t> parse_with_unit(std::string_view text, std::span<const Unit> units,
                                std::string_view hint) {
  int64_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const auto known =
      std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.name == unit; });
  if (code != std::errc() || number < 0 || known == units.end()) {
    return make_error(Errc::invalid_argument, quoted_text(text) + " " + std::string(hint));
  }
  int64_t value = 0;
  if (__builtin_mul_overflow(number, known->factor, &value)) {
    return make_error(Errc::invalid_argument, quoted_text(text) + " is too large");
  }
  return value;
}

std::string with_unit(int64_t value, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    if (value != 0 && value % unit.factor == 0) {
      return std::to_string(value / unit.factor) + std::string(unit.name);
    }
  }
  return "0" + std::string(units.back().name);
}

// Edit distance with swaps of neighbours, capped by the lengths of configuration words.
size_t edit_distance(std::string_view a, std::string_view b) {
  constexpr size_t kMax = 64;
  a = a.substr(0, kMax);
  b = b.substr(0, kMax);
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1,
                          d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string quoted_text(std::string_view text) {
  std::string out;
  append_json_string(out, text.substr(0, 80));
  return out;
}

Result<int64_t> parse_bytes(std::string_view text) {
  return parse_with_unit(text, kByteUnits,
                         "is no size: write a whole number and one of B, KiB, MiB, GiB, TiB, such "
                         "as \"1GiB\"");
}

Result<Duration> parse_duration(std::string_view text) {
  TRY_ASSIGN(const int64_t ms, parse_with_unit(text, kTimeUnits,
                                               "is no duration: write a whole number and one of "
                                               "ms, s, m, h, such as \"10s\""));
  return Duration(ms);
}

std::string bytes_text(int64_t bytes) { return with_unit(bytes, kByteUnits); }
std::string duration_text(Duration duration) { return with_unit(duration.count(), kTimeUnits); }

Result<void> check_model_name(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._:/+-").find(c) != std::string_view::npos;
  };
  if (!text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), allowed)) {
    return {};
  }
  return make_error(Errc::invalid_argument,
                    quoted_text(text) + " is no model name: 1 to 64 letters, digits and . _ : / + -");
}

Result<void> check_host_name(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
  };
  if (!text.empty() && text.size() <= 253 && std::all_of(text.begin(), text.end(), allowed)) {
    return {};
  }
  return make_error(Errc::invalid_argument,
                    quoted_text(text) + " is no host name: lower-case letters, digits, . and -");
}

Result<BaseUrl> parse_base_url(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  const auto bad = [&](const std::string& why) {
    return make_error(Errc::invalid_argument, quoted_text(text) + " " + why);
  };
  if (text.starts_with("https://")) {
    return bad("wants TLS, which Tandem leaves to a proxy on this machine: give the proxy's http:// address");
  }
  if (!text.starts_with(kScheme)) return bad("must begin with http://");
  text.remove_prefix(kScheme.size());
  const size_t slash = text.find('/');
  BaseUrl out;
  if (slash != std::string_view::npos) out.path = std::string(text.substr(slash));
  while (out.path.ends_with('/')) out.path.pop_back();
  std::string_view host = text.substr(0, slash);
  const size_t colon = host.rfind(':');
  bool fine = true;
  if (colon != std::string_view::npos && (!host.starts_with('[') || colon > host.find(']'))) {
    const std::string_view port = host.substr(colon + 1);
    const auto [end, code] = std::from_chars(port.data(), port.data() + port.size(), out.port);
    fine = code == std::errc() && end == port.data() + port.size() && out.port != 0;
    host = host.substr(0, colon);
  }
  const auto address = parse_listen(std::string(host) + ":1");  // an address, or localhost
  fine = fine && (address.ok() || check_host_name(host).ok());
  fine = fine && std::none_of(out.path.begin(), out.path.end(), [](unsigned char c) {
    return c <= ' ' || c > '~' || c == '?' || c == '#';
  });
  if (!fine) return bad("is no address such as \"http://10.0.0.7:8000\"");
  out.host = address.ok() ? address->host : std::string(host);
  out.loopback = address.ok() && address->loopback;
  return out;
}

std::string absolute_path(const std::string& base_dir, const std::string& path) {
  if (path.empty() || path.front() == '/' || base_dir.empty()) return path;
  return base_dir + (base_dir.back() == '/' ? "" : "/") + path;
}

Result<void> check_item(ValueKind kind, const std::string& value) {
  if (std::any_of(value.begin(), value.end(), [](unsigned char c) { return c < ' '; })) {
    return make_error(Errc::invalid_argument, quoted_text(value) + " must not hold control characters");
  }
  if (kind == ValueKind::texts) return {};
  if (kind == ValueKind::urls) return parse_base_url(value).ok() ? Result<void>() : parse_base_url(value).error();
  if (kind == ValueKind::hosts) return check_host_name(value);
  if (kind == ValueKind::classes) {
    if (value == "interactive" || value == "batch") return {};
    return make_error(Errc::invalid_argument, quoted_text(value) + " is none of: interactive batch");
  }
  if (kind != ValueKind::rules) return check_model_name(value);
  if (policies::rule_number(value).has_value()) return {};
  return make_error(Errc::invalid_argument, quoted_text(value) + " is no rule: they are called R1 to R" +
                                                std::to_string(policies::kRules - 1));
}

Result<void> check_entry(std::string_view name, const std::string& value) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto allowed = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  if (name.empty() || !letter(name.front()) || !std::all_of(name.begin(), name.end(), allowed)) {
    return make_error(Errc::invalid_argument, quoted_text(name) + " is no name: letters, digits and _");
  }
  return check_item(ValueKind::texts, value);
}

std::string_view nearest_word(std::string_view word, const std::vector<std::string_view>& known) {
  std::string_view best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string_view candidate : known) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

Result<ListenAddress> parse_listen(std::string_view text) {
  const auto fail = [&] {
    return make_error(Errc::invalid_argument,
                      quoted_text(text) + " is no address: write \"127.0.0.1:8080\" or \"[::1]:8080\"");
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return fail();
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  ListenAddress address;
  const auto [end, code] =
      std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (code != std::errc() || end != port.data() + port.size() || port.empty()) return fail();
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty() || (!bracketed && host.find(':') != std::string_view::npos)) return fail();
  if (host.find_first_not_of("0123456789abcdefABCDEFlocalhost.:") != std::string_view::npos) {
    return fail();
  }
  address.host = host == "localhost" ? "127.0.0.1" : std::string(host);
  address.loopback = address.host == "::1" || address.host.starts_with("127.");
  return address;
}

}  // namespace tandem::service
