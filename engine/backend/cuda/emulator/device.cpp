#include "backend/cuda/emulator/device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace octavo::emulator {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kMaxShared = 227 << 10;
constexpr unsigned kMaxThreads = 1024, kMaxGridYZ = 65535;
constexpr size_t kPoisoned = size_t{64} << 20;  // larger allocations stay untouched, so that they cost nothing

// After these the context is gone.
bool lasts(cudaError_t error) {
  return error == cudaErrorIllegalAddress || error == cudaErrorMisalignedAddress || error == cudaErrorLaunchFailure ||
         error == cudaErrorECCUncorrectable;
}

void perform(const Copy& c) {
  for (size_t row = 0; row < c.height; ++row) {
    std::memmove(static_cast<std::byte*>(c.to) + row * c.to_pitch,
                 static_cast<const std::byte*>(c.from) + row * c.from_pitch, c.width);
  }
}

// Whether the word is the address of something in this process. Two integers beside each other look like what lies
// between the heap of a program at a fixed place and the other mappings, which is a sanitizer's; a small integer beside
// padding, which holds anything, like the first page of a thread's heap.
bool is_address(uint64_t word) {
  constexpr uint64_t kLowest = uint64_t{1} << 16;
#ifdef __SANITIZE_ADDRESS__  // its shadow is mapped there, and its heap lies among the mappings
  constexpr uint64_t kHeapEnd = kLowest;
#else
  constexpr uint64_t kHeapEnd = uint64_t{1} << 33;
#endif
  constexpr uint64_t kMappings = uint64_t{1} << 46, kEnd = uint64_t{1} << 47, kSmall = uint64_t{1} << 20;
  if (word < kLowest || (word >= kHeapEnd && word < kMappings) || word >= kEnd) return false;
  if (word >= kMappings && word % (uint64_t{1} << 32) < kSmall) return false;
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return msync(reinterpret_cast<void*>(word / page * page), 1, MS_ASYNC) == 0;
}

}  // namespace

Device& Device::get() {
  static Device device;
  return device;
}

cudaDeviceProp Device::properties() const {
  cudaDeviceProp p{};
  std::snprintf(p.name, sizeof p.name, "emulated CUDA device");
  p.totalGlobalMem = total_bytes_;
  p.sharedMemPerBlock = 48 << 10;
  p.sharedMemPerBlockOptin = kMaxShared;
  p.sharedMemPerMultiprocessor = 228 << 10;
  p.major = 9;
  p.minor = 0;
  p.multiProcessorCount = 4;
  p.maxThreadsPerBlock = kMaxThreads;
  p.warpSize = kWarp;
  p.l2CacheSize = 1 << 20;
  return p;
}

cudaError_t Device::note(cudaError_t error) {
  if (lasts(error)) lasting_ = error;
  if (error != cudaSuccess && error != cudaErrorNotReady) last_ = error;
  return error;
}

cudaError_t Device::last_error(bool clear) {
  const cudaError_t error = lasting_ != cudaSuccess ? lasting_ : last_;
  if (clear) last_ = cudaSuccess;
  return error;
}

cudaError_t Device::answer(Call call) {
  if (lasting_ != cudaSuccess) return lasting_;
  Failure& failure = failures_[static_cast<size_t>(call)];
  if (failure.after < 0) return cudaSuccess;
  return failure.after-- == 0 ? note(failure.error) : cudaSuccess;
}

void Device::fail_later(Call call, int after, cudaError_t error) {
  failures_[static_cast<size_t>(call)] = {after, error};
}

void Device::reset_hooks() {
  failures_ = {};
  lasting_ = last_ = cudaSuccess;
  seed_ = 0;
  strict_ = false;
  count_ = 1;
  skip_kernels_ = false;
  total_bytes_ = kTotalBytes;
}

cudaError_t Device::allocate(void** memory, size_t bytes, bool on_device) {
  *memory = nullptr;
  if (captures_) return note(cudaErrorStreamCaptureUnsupported);
  if (const cudaError_t status = answer(Call::kMalloc); status != cudaSuccess) return status;
  if (bytes == 0) return cudaSuccess;
  if (on_device && bytes > free_bytes()) return note(cudaErrorMemoryAllocation);
  void* place = nullptr;
  if (posix_memalign(&place, kAlignment, bytes) != 0) return note(cudaErrorMemoryAllocation);
  if (skip_kernels_ || bytes <= kPoisoned) std::memset(place, skip_kernels_ ? 0 : 0xff, bytes);
  allocations_[static_cast<std::byte*>(place)] = {bytes, on_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost, true};
  if (on_device) used_bytes_ += bytes;
  *memory = place;
  return cudaSuccess;
}

cudaError_t Device::release(void* memory, bool on_device) {
  if (!memory) return cudaSuccess;
  const auto found = allocations_.find(static_cast<std::byte*>(memory));
  if (found == allocations_.end() || !found->second.owned || (found->second.type == cudaMemoryTypeDevice) != on_device)
    return note(cudaErrorInvalidValue);
  drain_all();
  if (on_device) used_bytes_ -= found->second.bytes;
  allocations_.erase(found);
  std::free(memory);
  return lasting_;
}

cudaError_t Device::register_host(void* memory, size_t bytes) {
  if (const cudaError_t status = answer(Call::kMalloc); status != cudaSuccess) return status;
  allocations_[static_cast<std::byte*>(memory)] = {bytes, cudaMemoryTypeHost, false};
  return cudaSuccess;
}

cudaError_t Device::unregister_host(void* memory) {
  const auto found = allocations_.find(static_cast<std::byte*>(memory));
  if (found == allocations_.end() || found->second.owned) return note(cudaErrorInvalidValue);
  drain_all();
  allocations_.erase(found);
  return cudaSuccess;
}

cudaMemoryType Device::type_of(const void* memory, size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(memory);
  auto after = allocations_.upper_bound(begin);
  if (after == allocations_.begin()) return cudaMemoryTypeUnregistered;
  const auto& [start, allocation] = *--after;
  return begin + bytes <= start + allocation.bytes ? allocation.type : cudaMemoryTypeUnregistered;
}

size_t Device::free_bytes() const { return total_bytes_ > used_bytes_ ? total_bytes_ - used_bytes_ : 0; }

size_t Device::live_bytes() const {
  size_t bytes = 0;
  for (const auto& [start, allocation] : allocations_) bytes += allocation.owned ? allocation.bytes : 0;
  return bytes;
}

cudaError_t Device::copy(const Copy& copy, cudaMemcpyKind kind, Stream* stream) {
  if (const cudaError_t status = answer(Call::kCopy); status != cudaSuccess) return status;
  if (copy.width == 0 || copy.height == 0) return cudaSuccess;
  const cudaMemoryType to = type_of(copy.to, (copy.height - 1) * copy.to_pitch + copy.width);
  const cudaMemoryType from = type_of(copy.from, (copy.height - 1) * copy.from_pitch + copy.width);
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault &&
      (to_device != (to == cudaMemoryTypeDevice) || from_device != (from == cudaMemoryTypeDevice)))
    return note(cudaErrorInvalidValue);
  if (to == cudaMemoryTypeDevice && from != cudaMemoryTypeDevice) {
    for (size_t row = 0; row < copy.height; ++row) {
      const cudaError_t status =
          check_pointers(static_cast<const std::byte*>(copy.from) + row * copy.from_pitch, copy.width);
      if (status != cudaSuccess) return status;
    }
  }
  if (from == cudaMemoryTypeUnregistered) {  // pageable memory is read before the call returns
    auto staged = std::make_shared<std::vector<std::byte>>(copy.width * copy.height);
    perform({staged->data(), copy.width, copy.from, copy.from_pitch, copy.width, copy.height});
    return enqueue(stream, [copy, staged] {
      perform({copy.to, copy.to_pitch, staged->data(), copy.width, copy.width, copy.height});
    });
  }
  const cudaError_t status = enqueue(stream, [copy] { perform(copy); });
  if (to != cudaMemoryTypeUnregistered || status != cudaSuccess) return status;
  return capturing(stream) ? note(cudaErrorStreamCaptureUnsupported) : synchronize(stream);
}

cudaError_t Device::fill(void* to, int value, size_t bytes, Stream* stream) {
  if (const cudaError_t status = answer(Call::kCopy); status != cudaSuccess) return status;
  if (bytes && type_of(to, bytes) != cudaMemoryTypeDevice) return note(cudaErrorInvalidValue);
  return enqueue(stream, [to, value, bytes] { std::memset(to, value, bytes); });
}

cudaError_t Device::check_pointers(const void* bytes, size_t size) {
  if (!strict_) return cudaSuccess;
  for (size_t at = 0; at + sizeof(uint64_t) <= size; at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, static_cast<const std::byte*>(bytes) + at, sizeof word);
    if (is_address(word) && type_of(reinterpret_cast<const void*>(word), 0) != cudaMemoryTypeDevice)
      return note(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t Device::launch(const Block::Shape& given, Stream* stream, Work body) {
  if (const cudaError_t status = answer(Call::kLaunch); status != cudaSuccess) return status;
  Block::Shape shape = given;
  shape.seed = seed_;
  const uint64_t threads = uint64_t{shape.block.x} * shape.block.y * shape.block.z;
  const bool no_blocks = shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0;
  if (threads == 0 || threads > kMaxThreads || no_blocks || shape.grid.y > kMaxGridYZ || shape.grid.z > kMaxGridYZ)
    return note(cudaErrorInvalidConfiguration);
  if (shape.shared_bytes > kMaxShared) return note(cudaErrorInvalidValue);
  if (skip_kernels_) return cudaSuccess;
  return enqueue(stream, [shape, body = std::move(body)] { Block::current().run_grid(shape, body); });
}

}  // namespace octavo::emulator

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define OCTAVO_NAME(name) \
  case name:              \
    return #name;
    OCTAVO_NAME(cudaSuccess)
    OCTAVO_NAME(cudaErrorInvalidValue)
    OCTAVO_NAME(cudaErrorMemoryAllocation)
    OCTAVO_NAME(cudaErrorInitializationError)
    OCTAVO_NAME(cudaErrorInvalidConfiguration)
    OCTAVO_NAME(cudaErrorInsufficientDriver)
    OCTAVO_NAME(cudaErrorNoDevice)
    OCTAVO_NAME(cudaErrorInvalidDevice)
    OCTAVO_NAME(cudaErrorECCUncorrectable)
    OCTAVO_NAME(cudaErrorInvalidResourceHandle)
    OCTAVO_NAME(cudaErrorNotReady)
    OCTAVO_NAME(cudaErrorIllegalAddress)
    OCTAVO_NAME(cudaErrorLaunchOutOfResources)
    OCTAVO_NAME(cudaErrorMisalignedAddress)
    OCTAVO_NAME(cudaErrorLaunchFailure)
    OCTAVO_NAME(cudaErrorStreamCaptureUnsupported)
    OCTAVO_NAME(cudaErrorStreamCaptureInvalidated)
    OCTAVO_NAME(cudaErrorUnknown)
#undef OCTAVO_NAME
  }
  return "cudaErrorUnrecognized";
}

const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
