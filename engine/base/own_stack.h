#pragma once
#include <cstddef>
#include <functional>

namespace octavo {

// Runs `work` on a thread of its own with a stack of at least `bytes`, waits for it and throws on what it throws. For
// libraries that recurse as deep as their input is nested. Memory is taken as the stack is used; the thread has the
// caller's priority. Throws Error(kOutOfMemory) if there is no such thread to be had.
void run_on_own_stack(size_t bytes, const std::function<void()>& work);

}  // namespace octavo
