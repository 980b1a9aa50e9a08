#pragma once
#include "backend/cpu/isa.h"

namespace octavo {

// What this machine can do at most with an instruction set, measured now on `threads` threads for about `seconds` each.
// 0: not with this one.
// Kernels are judged by their share of these, since absolute figures move with the neighbours.
struct Ceilings {
  double fma_gflops = 0;   // f32 multiply-add on 256-bit registers, all operands in registers
  double bf16_gflops = 0;  // pairs of bf16 into f32: vdpbf16ps
  double int8_gops = 0;    // the 4-bit kernels' mix: two maddubs, an int16 add, madd, an int32 add; vpdpbusd
  double int16_gops = 0;   // the 8-bit kernels' mix: codes widened, madd, an int32 add, a group's scales; vpdpwssd
  double read_gbytes = 0;  // reading huge pages far beyond the caches
};

Ceilings measure_ceilings(Isa isa, int threads, double seconds);

}  // namespace octavo
