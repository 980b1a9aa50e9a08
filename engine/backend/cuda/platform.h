#pragma once
// The one include of device code: CUDA under nvcc, the host emulator elsewhere. Kernels are launched by launch() alone,
// so that every source compiles as either.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#ifdef OCTAVO_CUDA_EMULATOR
#include "backend/cuda/emulator/device_code.h"
#include "backend/cuda/emulator/half_types.h"
#include "backend/cuda/emulator/runtime_api.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#endif

namespace octavo::cuda {

#ifdef OCTAVO_CUDA_EMULATOR

template <class T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(emulator::Block::current().dynamic_shared());
}

template <class... Params, class... Args>
cudaError_t try_launch(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                       Args&&... args) {
  std::tuple<std::decay_t<Params>...> values(std::forward<Args>(args)...);
  const cudaError_t status =
      std::apply([](const auto&... v) { return emulator::check_arguments({{&v, sizeof v}...}); }, values);
  if (status != cudaSuccess) return status;
  return emulator::launch_kernel(__PRETTY_FUNCTION__, grid, block, shared_bytes, stream,
                                 [kernel, values] { std::apply(kernel, values); });
}

#else

// The block's dynamic shared memory. Its size is the launch's.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char octavo_dynamic_shared[];
  return reinterpret_cast<T*>(octavo_dynamic_shared);
}

template <class... Params, class... Args>
cudaError_t try_launch(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                       Args&&... args) {
  constexpr size_t kWithoutAsking = 48 << 10;
  if (shared_bytes > kWithoutAsking) {
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (status != cudaSuccess) return status;
  }
  std::tuple<std::decay_t<Params>...> values(std::forward<Args>(args)...);
  return std::apply(
      [&](auto&... value) {
        void* pointers[] = {&value..., nullptr};
        return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, pointers, shared_bytes, stream);
      },
      values);
}

#endif

// Throws on an error of the launch; one of the kernel appears at a later call.
void check(cudaError_t status, const char* what);

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
            Args&&... args) {
  check(try_launch(kernel, grid, block, shared_bytes, stream, std::forward<Args>(args)...), "kernel launch");
}

}  // namespace octavo::cuda
