// Memory and streams of the emulated device for device_array.py, which makes of them what torch would have on a GPU.
#include <cstddef>

#include "backend/cuda/platform.h"

#pragma GCC visibility push(default)
extern "C" {

void* trial_malloc(size_t bytes) {
  void* memory = nullptr;
  return cudaMalloc(&memory, bytes) == cudaSuccess ? memory : nullptr;
}
int trial_free(void* memory) { return cudaFree(memory); }
int trial_copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}
int trial_fill(void* to, int value, size_t bytes, cudaStream_t stream) {
  return cudaMemsetAsync(to, value, bytes, stream);
}
cudaStream_t trial_make_stream() {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  return stream;
}
int trial_set_device(int index) { return cudaSetDevice(index); }
int trial_device() {
  int index = -1;
  cudaGetDevice(&index);
  return index;
}
int trial_destroy_stream(cudaStream_t stream) { return cudaStreamDestroy(stream); }
int trial_synchronize(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
// Records the stream's work from here on, and forgets it.
int trial_begin_capture(cudaStream_t stream) {
  return cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
}
int trial_end_capture(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  const cudaError_t status = cudaStreamEndCapture(stream, &graph);
  return status == cudaSuccess ? cudaGraphDestroy(graph) : status;
}
// Launches a kernel that does nothing with its argument; the error of the launch.
int trial_pass(const void* pointer) {
  return octavo::cuda::try_launch(+[](const void*) {}, dim3(1), dim3(1), 0, nullptr, pointer);
}
}
#pragma GCC visibility pop
