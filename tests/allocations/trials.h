#pragma once

// Both print what they found and return whether all was well.

// The loop with hashes instead of a model: every allocation of a run fails in its turn, `times` of them in a row.
// `slots`: steps under way at once. `windows`: a KV group keeps only a window.
bool try_loop(int slots, bool windows, int times);
// An engine with its thread and a tiny model: `runs` allocations of a run of its thread, evenly spread.
bool try_engine(int runs, int times);
// The threads that call an engine: what finds no memory there throws and is not taken, the rest goes on.
bool try_callers();
