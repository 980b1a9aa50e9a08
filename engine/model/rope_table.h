#pragma once
#include "model/rope_config.h"
#include "tensor/buffer.h"

namespace octavo {

// Cosines and sines of every position: [max_positions, rotary_dim], cos [rotary_dim / 2] then sin [rotary_dim / 2].
// Frequencies and angles are rounded to float32 where transformers rounds them. One table serves every request: what
// depends on the length of a sequence (dynamic NTK, the two factors of LongRoPE) is chosen for `max_positions`.
Buffer make_rope_table(const RopeConfig& rope, int max_positions);

}  // namespace octavo
