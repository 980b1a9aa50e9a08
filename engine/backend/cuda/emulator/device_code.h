#pragma once
// What CUDA kernels find built in.
#include "backend/cuda/emulator/atomics.h"
#include "backend/cuda/emulator/block.h"
#include "backend/cuda/emulator/collectives.h"
#include "backend/cuda/emulator/intrinsics.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
// Static shared memory, in a section of its own (see block.cpp). The compiler takes it for an error when variables of
// templates and of plain functions share a section, so each gets a name that differs behind the assembler's comment
// sign.
#define OCTAVO_TEXT_OF(x) #x
#define OCTAVO_SHARED_SECTION(n) "octavo_shared,\"aw\",@progbits#" OCTAVO_TEXT_OF(n)
#define __shared__ __attribute__((section(OCTAVO_SHARED_SECTION(__COUNTER__)))) static

#define threadIdx (::octavo::emulator::Block::current().lane().thread)
#define blockIdx (::octavo::emulator::Block::current().block_index())
#define blockDim (::octavo::emulator::Block::current().shape().block)
#define gridDim (::octavo::emulator::Block::current().shape().grid)
inline constexpr int warpSize = 32;
