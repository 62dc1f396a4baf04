// Explores the shipped lease (base/lease/word.h) exhaustively: two tenants whose every touch of shared state
// is one step, all interleavings of these steps up to a depth, and the death of either tenant before any of
// its steps, with or without a new process in its place. No threads: a tenant's program is run again from
// its start with the answers it got so far, makes one new step on the shared state, and is left by longjmp
// at the one after (nothing on its stack has a destructor that matters).
//
// Two paths that lead to the same state go on alike, so the second one is cut off. What a tenant remembers is
// where it stands (marks of the program), the answers since it last loaded the word (each loop of the lease
// begins with a load and keeps nothing else but the epoch it took), and that epoch; epochs count from the
// present one. A lease that remembered more across a load would have to say so here. Sleeping ends by a wake only; a timeout counts only once a process has died, so a
// lost wake-up is a deadlock here although the product would recover from it in 3 ms.
#pragma once

#include <csetjmp>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/lease/word.h"

namespace tandem::tests {

// What is broken on purpose, to see that the explorer notices.
enum class LeaseMutation : uint8_t {
  none,
  drop_wake,        // a wake reaches nobody
  blind_store,      // a compare-exchange stores without comparing
  blind_sleep,      // a sleep does not compare the word
  never_dead,       // nobody's death is seen
  always_dead,      // a live neighbour is taken for dead
};

enum class LeaseTurns : uint8_t {
  alternate,      // whoever waits is next
  default_first,  // tenant 0 keeps its turn; tenant 1 goes on when 0 has no work
};

struct LeaseExploration {
  LeaseTurns turns = LeaseTurns::alternate;
  LeaseMutation mutation = LeaseMutation::none;
  int rounds = 2;           // steps of each tenant, of two units
  bool crashes = false;     // one tenant may die once, anywhere
  bool returns = false;     // and may come back as a new process
  bool bypasses = false;    // tenant 0 may bypass a live holder once
  size_t depth_max = 400;   // steps of a path
  size_t states_max = 20'000'000;
};

struct LeaseVerdict {
  std::string failure;  // empty: everything held on every path
  std::vector<int> path;
  size_t states = 0;
  size_t ends = 0;      // paths on which everybody finished
  size_t cut = 0;       // paths longer than depth_max
  size_t depth = 0;     // of the longest path
};

class LeaseExplorer {
 public:
  explicit LeaseExplorer(const LeaseExploration& options) : options_(options) {}
  LeaseVerdict run();

 private:
  struct Answer {
    uint32_t value = 0;
    bool is_word = false;
  };
  struct Tenant {
    std::vector<Answer> answers;  // all: the program is run again from its start
    size_t relevant = 0;          // from this one on they are remembered
    int place = 0;                // the last mark, and
    int loads = 0;                // loads since then: 0, 1, more
    uint32_t last_word = 0;
    bool holds = false;           // and remembers the epoch of
    uint32_t held_word = 0;
    bool alive = true;
    bool present = true;   // what its identity says; a new process sets it late
    bool returned = false;
    bool sleeping = false;
    bool inside = false;
    bool finished = false;
    int timeouts_left = 3;  // more would only repeat: one death loses one wake
  };
  struct State {
    uint32_t word = 0;
    Tenant tenants[kLeaseTenants];
    bool crashed = false;
    bool bypassed = false;
    bool excused = false;  // tenant 1 was bypassed and has not come to the end of its unit yet
  };

  // The platform of one tenant while one step of it runs.
  struct Platform {
    LeaseExplorer& explorer;
    int self;
    uint32_t load();
    bool cas(uint32_t& expected, uint32_t desired);
    bool spin_while(uint32_t word);
    void wait(uint32_t word);
    void wake(int tenant);
    bool dead(int tenant);
    bool overdue(uint32_t word);
    void enter();
    void leave();
    void appear();
    void finish();
    void mark(int place, bool holds = false);
    template <typename Step>
    uint32_t step(bool is_word, Step make);
  };

  void visit(const State& state, size_t depth);
  State after_step(const State& state, int tenant);
  void program(int tenant);
  [[nodiscard]] bool can_step(const State& state, int tenant) const;
  [[nodiscard]] static uint64_t key(const State& state);
  void fail(const char* what);

  const LeaseExploration options_;
  LeaseVerdict verdict_;
  std::unordered_set<uint64_t> seen_;
  std::vector<int> path_;
  State now_;             // the state that a step works on
  size_t next_answer_ = 0;
  bool stepped_ = false;
  std::jmp_buf left_;
};

}  // namespace tandem::tests
