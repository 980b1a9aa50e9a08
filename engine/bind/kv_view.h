#pragma once
#include "bind.h"
#include "runtime/engine.h"

namespace octavo {

// One layer's keys and values where they lie in the pool, read-only, without a copy: (K, V), K as
// [blocks, kv_heads, head_dim, block_size] and V as [blocks, kv_heads, block_size, head_dim]; `owner` (the Python
// object that holds the engine) lives as long as the views. Error(kInvalidArgument, "layer", ...) for a layer that is
// not there.
nb::tuple kv_view(const Engine& engine, int layer, nb::handle owner);

}  // namespace octavo
