# Sources of the CUDA backend. They compile with nvcc into liboctavo_cuda.so and as host C++, against emulator/, into
# liboctavo_cuda_emulated.so.
set(OCTAVO_CUDA_HOST_SOURCES
  check.cpp
  pending.cpp
)
set(OCTAVO_CUDA_KERNEL_SOURCES
)
