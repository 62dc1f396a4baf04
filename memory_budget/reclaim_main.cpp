// tandem-reclaim once      for a tandemd that is root
// tandem-reclaim answer    for its socket unit: the same, and its end as a line on standard output
//
// The one privileged thing that tandemd needs beside its engines: sync, drop clean caches, compact. It
// reads nothing, takes no path, and does the same whoever asks. Exit status: 0 done, 1 failed, 2 usage.
#include <cstdio>
#include <string>
#include <string_view>

#include "memory_budget/reclaim.h"

int main(int argc, char** argv) {
  const std::string_view how = argc == 2 ? argv[1] : "";
  if (how != "once" && how != "answer") {
    std::fprintf(stderr, "usage: tandem-reclaim once|answer\n");
    return 2;
  }
  const auto done = tandem::budget::reclaim_once("");
  if (how == "answer") std::fputs(tandem::budget::reclaim_answer(done).c_str(), stdout);
  if (done.ok()) return 0;
  std::fprintf(stderr, "tandem-reclaim: %s\n", done.error().message.c_str());
  return 1;
}
