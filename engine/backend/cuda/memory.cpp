#include "backend/cuda/memory.h"

#include "backend/cuda/check.h"
#include "base/errors.h"
#include "base/format.h"

namespace octavo::cuda {
namespace {

std::byte* allocate_gpu(size_t bytes) {
  void* memory = nullptr;
  if (bytes == 0) return nullptr;
  if (const cudaError_t status = cudaMalloc(&memory, bytes); status != cudaSuccess) {
    cudaGetLastError();
    if (status != cudaErrorMemoryAllocation) check(status, "allocating GPU memory");
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw Error(ErrorCode::kOutOfMemory, "memory",
                cat("the GPU has ", free, " of ", total, " bytes free, ", bytes, " are needed"));
  }
  cudaError_t status = cudaMemset(memory, 0, bytes);
  if (status == cudaSuccess) status = cudaStreamSynchronize(nullptr);  // queues do not wait for the default stream
  if (status != cudaSuccess) {
    cudaFree(memory);
    check(status, "clearing GPU memory");
  }
  return static_cast<std::byte*>(memory);
}

std::byte* allocate_pinned(size_t bytes) {
  void* memory = nullptr;
  if (bytes == 0) return nullptr;
  if (const cudaError_t status = cudaMallocHost(&memory, bytes); status != cudaSuccess) {
    cudaGetLastError();
    if (status != cudaErrorMemoryAllocation) check(status, "allocating pinned memory");
    throw Error(ErrorCode::kOutOfMemory, "memory", cat("the host has no ", bytes, " bytes of memory to pin"));
  }
  return static_cast<std::byte*>(memory);
}

}  // namespace

GpuMemory::GpuMemory(size_t bytes) : DeviceMemory(allocate_gpu(bytes), bytes) {}
GpuMemory::~GpuMemory() { cudaFree(data()); }

PinnedMemory::PinnedMemory(size_t bytes) : DeviceMemory(allocate_pinned(bytes), bytes) {}
PinnedMemory::~PinnedMemory() { cudaFreeHost(data()); }

}  // namespace octavo::cuda
