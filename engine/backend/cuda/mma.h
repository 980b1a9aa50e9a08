#pragma once
// Tensor cores and asynchronous copies, one spelling for nvcc and the emulator. A warp calls these together.
#include "backend/cuda/platform.h"

#ifdef OCTAVO_CUDA_EMULATOR
#include "backend/cuda/emulator/warp_matrix.h"
#endif

namespace octavo::cuda {

#ifdef OCTAVO_CUDA_EMULATOR

inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], OCTAVO_SITE_PARAMS) {
  const emulator::Fragments f{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {d[0], d[1], d[2], d[3]}};
  const emulator::Accumulators r = emulator::mma_m16n8k16(f, emulator::Element::kF16, OCTAVO_SITE);
  for (int i = 0; i < 4; ++i) d[i] = r.d[i];
}
inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], OCTAVO_SITE_PARAMS) {
  const emulator::Fragments f{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {d[0], d[1], d[2], d[3]}};
  const emulator::Accumulators r = emulator::mma_m16n8k16(f, emulator::Element::kBF16, OCTAVO_SITE);
  for (int i = 0; i < 4; ++i) d[i] = r.d[i];
}

template <int kCount, bool kTransposed>
void load_matrices(uint32_t (&r)[kCount], const void* row, OCTAVO_SITE_PARAMS) {
  const emulator::Registers loaded = emulator::load_matrices(row, kCount, kTransposed, OCTAVO_SITE);
  for (int i = 0; i < kCount; ++i) r[i] = loaded.r[i];
}
inline void ldmatrix_x4(uint32_t (&r)[4], const void* row, OCTAVO_SITE_PARAMS) {
  load_matrices<4, false>(r, row, file, line);
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row, OCTAVO_SITE_PARAMS) {
  load_matrices<4, true>(r, row, file, line);
}
inline void ldmatrix_x2(uint32_t (&r)[2], const void* row, OCTAVO_SITE_PARAMS) {
  load_matrices<2, false>(r, row, file, line);
}
inline void ldmatrix_x2_trans(uint32_t (&r)[2], const void* row, OCTAVO_SITE_PARAMS) {
  load_matrices<2, true>(r, row, file, line);
}

inline void cp_async_16(void* shared, const void* global, bool valid = true, bool wanted = true) {
  if (!wanted) return;
  if ((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global)) % 16)
    emulator::Block::current().fail("cp.async of 16 bytes at an address that is not 16-byte aligned");
  emulator::Block::current().copy_async({shared, global, 16, valid ? size_t{16} : 0});
}
inline void cp_async_commit() { emulator::Block::current().commit_copies(); }
template <int kGroupsLeft>
void cp_async_wait() {
  emulator::Block::current().wait_copies(kGroupsLeft);
}

#else

// d += a b: a [16, 16] by rows, b [16, 8] by columns, d [16, 8]; the order of the sum within is the hardware's own.
__device__ __forceinline__ void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
// Matrices of 8 x 8 16-bit elements; lane 8 i + j gives the address of row j of matrix i, in shared memory.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x2(uint32_t (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];\n"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];\n"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
}

// 16 bytes to shared memory behind the program's back; not valid: zeros, and nothing is read; not wanted: nothing at
// all.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global, bool valid = true, bool wanted = true) {
  asm volatile(
      "{\n.reg .pred wanted;\nsetp.ne.s32 wanted, %3, 0;\n"
      "@wanted cp.async.cg.shared.global [%0], [%1], 16, %2;\n}\n" ::"r"(shared_address(shared)),
      "l"(global), "r"(valid ? 16 : 0), "r"(wanted ? 1 : 0)
      : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
// Waits until at most kGroupsLeft of the thread's latest groups are on their way.
template <int kGroupsLeft>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kGroupsLeft) : "memory");
}

#endif

}  // namespace octavo::cuda
