#include "tests/policies/case_check.h"

namespace tandem::policies {

void check_output_case(const Json&, Differences& out) {
  out.push_back({"R12-R19", "an answer parser", "none is linked"});
}
void check_delta_case(const Json&, Differences& out) {
  out.push_back({"R19", "an answer parser", "none is linked"});
}

}  // namespace tandem::policies
