#include "backend/cuda/emulator/runtime_api.h"

#include "backend/cuda/emulator/device.h"

using octavo::emulator::Call;
using octavo::emulator::Device;
using octavo::emulator::Guard;

namespace {

thread_local int current = 0;  // the thread's device

bool is_there(Guard& device, int index) { return index >= 0 && index < device->count(); }

// A stream takes launches and events of its own device only.
cudaError_t check_stream(Guard& device, cudaStream_t stream) {
  return device->is_elsewhere(stream, current) ? device->note(cudaErrorInvalidResourceHandle) : cudaSuccess;
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  Guard device;
  *count = device->count();
  return device->answer(Call::kDevice);
}
cudaError_t cudaSetDevice(int index) {
  Guard device;
  if (!is_there(device, index)) return device->note(cudaErrorInvalidDevice);
  const cudaError_t status = device->answer(Call::kDevice);
  if (status == cudaSuccess) current = index;
  return status;
}
cudaError_t cudaGetDevice(int* index) {
  *index = current;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  Guard device;
  if (!is_there(device, index)) return device->note(cudaErrorInvalidDevice);
  *properties = device->properties();
  return device->answer(Call::kDevice);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int index) {
  Guard device;
  if (!is_there(device, index)) return device->note(cudaErrorInvalidDevice);
  const cudaDeviceProp properties = device->properties();
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      return cudaSuccess;
  }
  return device->note(cudaErrorInvalidValue);
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  Guard device;
  return device->synchronize_all();
}
cudaError_t cudaGetLastError() {
  Guard device;
  return device->last_error(true);
}
cudaError_t cudaPeekAtLastError() {
  Guard device;
  return device->last_error(false);
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  Guard device;
  return device->allocate(memory, bytes, true);
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  Guard device;
  return device->allocate(memory, bytes, false);
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) { return cudaMallocHost(memory, bytes); }
cudaError_t cudaFree(void* memory) {
  Guard device;
  return device->release(memory, true);
}
cudaError_t cudaFreeHost(void* memory) {
  Guard device;
  return device->release(memory, false);
}
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  Guard device;
  return device->register_host(memory, bytes);
}
cudaError_t cudaHostUnregister(void* memory) {
  Guard device;
  return device->unregister_host(memory);
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  Guard device;
  *total = device->properties().totalGlobalMem;
  *free = device->free_bytes();
  return device->answer(Call::kDevice);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  Guard device;
  void* pointer = const_cast<void*>(memory);
  const cudaMemoryType type = device->type_of(memory, 1);
  *attributes = {type, 0, type == cudaMemoryTypeUnregistered ? nullptr : pointer,
                 type == cudaMemoryTypeDevice ? nullptr : pointer};
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  Guard device;
  return device->copy({to, to_pitch, from, from_pitch, width, height}, kind, stream);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  Guard device;
  const cudaError_t status = device->copy({to, bytes, from, bytes, bytes, 1}, kind, nullptr);
  return status == cudaSuccess ? device->synchronize(cudaStream_t{}) : status;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  Guard device;
  return device->fill(to, value, bytes, stream);
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes, nullptr); }

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  Guard device;
  *stream = device->create_stream(current);
  return device->answer(Call::kDevice);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Guard device;
  return device->destroy_stream(stream);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Guard device;
  return device->synchronize(stream);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Guard device;
  return device->query(stream);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Guard device;
  return device->wait_event(stream, event);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  Guard device;
  return device->enqueue(stream, [function, argument] { function(argument); });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  Guard device;
  *event = device->create_event();
  return device->answer(Call::kDevice);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Guard device;
  return device->destroy_event(event);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Guard device;
  const cudaError_t status = check_stream(device, stream);
  return status == cudaSuccess ? device->record_event(event, stream) : status;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Guard device;
  return device->synchronize(event);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  Guard device;
  return device->query(event);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  Guard device;
  return device->elapsed(milliseconds, begin, end);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  Guard device;
  return device->begin_capture(stream);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  Guard device;
  return device->end_capture(stream, graph);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  Guard device;
  *status = device->capturing(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  Guard device;
  *exec = device->instantiate(graph);
  return device->answer(Call::kDevice);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  Guard device;
  return device->launch_graph(exec, stream);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  Guard device;
  return device->destroy_graph(graph);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  Guard device;
  return device->destroy_exec(exec);
}

namespace octavo::emulator {

cudaError_t check_arguments(std::initializer_list<std::pair<const void*, size_t>> arguments) {
  Guard device;
  for (const auto& [argument, bytes] : arguments) {
    if (const cudaError_t status = device->check_pointers(argument, bytes); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

cudaError_t launch_kernel(const char* name, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                          std::function<void()> body) {
  Guard device;
  const cudaError_t status = check_stream(device, stream);
  if (status != cudaSuccess) return status;
  return device->launch({grid, block, shared_bytes, 0, name}, stream, std::move(body));
}

}  // namespace octavo::emulator

void octavo_emulator_fail(int call, int after, int error) {
  Guard device;
  device->fail_later(static_cast<Call>(call), after, static_cast<cudaError_t>(error));
}
void octavo_emulator_set_seed(unsigned seed) {
  Guard device;
  device->set_seed(seed);
}
void octavo_emulator_set_memory(size_t total_bytes) {
  Guard device;
  device->set_memory(total_bytes);
}
void octavo_emulator_set_devices(int count) {
  Guard device;
  device->set_count(count);
}
void octavo_emulator_set_strict(int on) {
  Guard device;
  device->set_strict(on != 0);
}
void octavo_emulator_skip_kernels(int skip) {
  Guard device;
  device->skip_kernels(skip != 0);
}
size_t octavo_emulator_live_bytes() {
  Guard device;
  return device->live_bytes();
}
void octavo_emulator_reset() {
  Guard device;
  device->reset_hooks();
}
