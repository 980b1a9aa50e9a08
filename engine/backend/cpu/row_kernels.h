#pragma once

namespace octavo {

// Functions of one row, shared by the ops that stand alone and by linear()'s prologues, so that their bits agree.
// The order of every reduction depends on `dim` alone.
struct RowKernels {
  void (*rms_norm)(const float* x, const float* weight, float eps, int dim, float* out);  // out may be x
  void (*silu_mul)(const float* gate, const float* up, int dim, float* out);              // silu(gate) * up
};

extern const RowKernels kRowKernelsBaseline;
extern const RowKernels kRowKernelsAvx2;

}  // namespace octavo
