// Prints the table of keys for docs/configuration.md, which config_reference_test compares.
#include <cstdio>

#include "service/config.h"

int main() {
  std::fputs(tandem::service::config_reference_table().c_str(), stdout);
  return 0;
}
