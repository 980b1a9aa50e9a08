// octavo_allocations loop SLOTS WINDOWS TIMES | engine RUNS TIMES | callers: allocations of the scheduler, the cache
// and the runtime fail, each in its turn. Every request must end once, with its tokens or an error of its own, the
// others' tokens unchanged, and the audit must be clean after every turn.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "trials.h"

int main(int argc, char** argv) {
  const std::string_view trial = argc > 1 ? argv[1] : "";
  const auto number = [&](int i) { return std::atoi(argv[i]); };
  if (trial == "loop" && argc == 5) return try_loop(number(2), number(3) != 0, number(4)) ? 0 : 1;
  if (trial == "engine" && argc == 4) return try_engine(number(2), number(3)) ? 0 : 1;
  if (trial == "callers" && argc == 2) return try_callers() ? 0 : 1;
  std::fprintf(stderr, "usage: octavo_allocations loop SLOTS WINDOWS TIMES | engine RUNS TIMES | callers\n");
  return 2;
}
