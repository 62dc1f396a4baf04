#include "engine/grammar/schema_formats.h"

#include <algorithm>
#include <iterator>

namespace tandem::engine {
namespace {

#define TANDEM_DATE                                                                              \
  "([1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|" \
  "02-(0[1-9]|1[0-9]|2[0-8]))|"                                                                  \
  "([1-9][0-9](0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26])00)-02-29)"
#define TANDEM_TIME                                                  \
  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?"         \
  "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
// At most 4 labels of 30 characters: always under the limits of 63 and 253.
#define TANDEM_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,28}[A-Za-z0-9])?"
#define TANDEM_HOST TANDEM_LABEL "(\\." TANDEM_LABEL "){0,3}"
#define TANDEM_OCTET "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define TANDEM_HEX "[0-9A-Fa-f]{1,4}"
// `after` counts the groups behind the double colon, at most.
#define TANDEM_V6(before, after) \
  TANDEM_HEX "(:" TANDEM_HEX "){" before "}::(" TANDEM_HEX "(:" TANDEM_HEX "){0," after "})?"
#define TANDEM_URI_CHARS "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*"
#define TANDEM_URI                                                                                  \
  "^[A-Za-z][A-Za-z0-9+.-]*://" TANDEM_HOST "(:[1-9][0-9]{0,3})?(/" TANDEM_URI_CHARS ")*(\\?" \
  TANDEM_URI_CHARS ")?(#" TANDEM_URI_CHARS ")?$"
#define TANDEM_EMAIL "^[A-Za-z0-9_+-]{1,30}(\\.[A-Za-z0-9_+-]{1,15}){0,2}@" TANDEM_HOST "$"
#define TANDEM_NUMBER "[0-9]{1,4}"
#define TANDEM_DURATION_TIME                                                                     \
  "T(" TANDEM_NUMBER "H(" TANDEM_NUMBER "M(" TANDEM_NUMBER "S)?)?|" TANDEM_NUMBER "M(" TANDEM_NUMBER \
  "S)?|" TANDEM_NUMBER "S)"
#define TANDEM_DURATION_DATE                                                                     \
  "(" TANDEM_NUMBER "Y(" TANDEM_NUMBER "M(" TANDEM_NUMBER "D)?)?|" TANDEM_NUMBER "M(" TANDEM_NUMBER \
  "D)?|" TANDEM_NUMBER "D)"

struct Format {
  std::string_view name;
  std::string_view expression;
};

constexpr Format kFormats[] = {
    {"date", "^" TANDEM_DATE "$"},
    {"time", "^" TANDEM_TIME "$"},
    {"date-time", "^" TANDEM_DATE "T" TANDEM_TIME "$"},
    {"duration", "^P(" TANDEM_DURATION_DATE "(" TANDEM_DURATION_TIME ")?|" TANDEM_DURATION_TIME
                 "|" TANDEM_NUMBER "W)$"},
    {"uuid", "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
    {"email", TANDEM_EMAIL},
    {"idn-email", TANDEM_EMAIL},
    {"hostname", "^" TANDEM_HOST "$"},
    {"ipv4", "^" TANDEM_OCTET "(\\." TANDEM_OCTET "){3}$"},
    {"ipv6", "^(" TANDEM_HEX "(:" TANDEM_HEX "){7}|::(" TANDEM_HEX "(:" TANDEM_HEX "){0,5})?|"
             TANDEM_V6("0", "4") "|" TANDEM_V6("1", "3") "|" TANDEM_V6("2", "2") "|"
             TANDEM_V6("3", "1") "|" TANDEM_V6("4", "0") ")$"},
    {"uri", TANDEM_URI},
    {"uri-reference", TANDEM_URI},
    {"iri", TANDEM_URI},
    {"iri-reference", TANDEM_URI},
    {"url", TANDEM_URI},
    {"json-pointer", "^(/([^~/]|~[01])*)*$"},
};

constexpr std::string_view kNumberFormats[] = {"binary", "byte",   "decimal", "double", "float",
                                               "int16",  "int32",  "int64",   "int8",   "password",
                                               "uint16", "uint32", "uint64",  "uint8"};

}  // namespace

std::string_view format_expression(std::string_view name) {
  for (const Format& format : kFormats) {
    if (format.name == name) return format.expression;
  }
  return {};
}

bool is_number_format(std::string_view name) {
  return std::find(std::begin(kNumberFormats), std::end(kNumberFormats), name) !=
         std::end(kNumberFormats);
}

}  // namespace tandem::engine
