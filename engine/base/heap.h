#pragma once

namespace octavo {

// Makes the C library's allocator hold little of what was freed, for a process that runs for months. To be called
// before the process has many threads. Does nothing where the library is not glibc.
void limit_heap();

// Gives the system what the allocator holds free.
void trim_heap();

}  // namespace octavo
