#pragma once
#include <cstdint>

// This program's operator new: it counts the allocations of one thread and makes some of them fail.

// From now on those of thread `tid`, numbered from 0, are counted, and [first, first + times) throw std::bad_alloc.
void fail_allocations(int tid, int64_t first, int64_t times);
// No more; returns how many there were.
int64_t stop_failing();
