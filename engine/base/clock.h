#pragma once
#include <ctime>

namespace octavo {

// Seconds on CLOCK_MONOTONIC.
inline double monotonic_seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

}  // namespace octavo
