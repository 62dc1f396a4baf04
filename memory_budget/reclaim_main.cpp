// tandem-reclaim once
//
// The one privileged thing that tandemd needs beside its engines: sync, drop clean caches, compact. It
// reads nothing, takes no path, and does the same whoever asks. Exit status: 0 done, 1 failed, 2 usage.
#include <cstdio>
#include <string_view>

#include "memory_budget/reclaim.h"

int main(int argc, char** argv) {
  if (argc != 2 || std::string_view(argv[1]) != "once") {
    std::fprintf(stderr, "usage: tandem-reclaim once\n");
    return 2;
  }
  const auto done = tandem::budget::reclaim_once("");
  if (done.ok()) return 0;
  std::fprintf(stderr, "tandem-reclaim: %s\n", done.error().message.c_str());
  return 1;
}
