#pragma once

namespace octavo {

// Functions of one row, shared by the ops that stand alone and by linear()'s prologues, so that their bits agree.
// The order of every reduction depends on `dim` alone.
struct RowKernels {
  void (*rms_norm)(const float* x, const float* weight, float eps, int dim, float* out);  // out may be x
  // activation(gate) * up; out may be gate
  void (*silu_mul)(const float* gate, const float* up, int dim, float* out);
  void (*gelu_tanh_mul)(const float* gate, const float* up, int dim, float* out);
  void (*clamped_silu_mul)(const float* gate, const float* up, int dim, float* out);
  void (*add_scaled)(float* x, const float* y, float scale, int dim);  // x += scale * y
  void (*scale_and_cap)(float* x, float scale, float cap, int dim);    // cap * tanh(scale * x / cap)
};

extern const RowKernels kRowKernelsBaseline;
extern const RowKernels kRowKernelsAvx2;

}  // namespace octavo
