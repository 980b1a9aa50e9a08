#pragma once
#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kv_kernels.h"
#include "backend/cpu/linear_kernels.h"
#include "backend/cpu/pack_kernels.h"
#include "backend/cpu/row_kernels.h"
#include "backend/cpu/screen_kernels.h"

namespace octavo {

// The inner loops of one instruction set. Everything around them (tiling, threads, checks) is shared.
// Files compiled for an instruction set define such tables and nothing else with external linkage: an inline function
// from a header could otherwise be emitted there and be picked by the linker for the whole program.
struct Kernels {
  RowKernels rows;
  LinearKernels linear;
  PackKernels pack;
  KvKernels kv;
  AttentionKernels attention;
  ScreenKernels screen;
};

const Kernels& kernels_for(Isa isa);

}  // namespace octavo
