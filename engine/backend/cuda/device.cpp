#include "backend/cuda/device.h"

#include "backend/cuda/check.h"
#include "base/errors.h"
#include "base/format.h"

namespace octavo::cuda {
namespace {

constexpr int kOldestMajor = 8;  // sm_80: mma of 16 x 8 x 16, cp.async

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::kUnsupported, "device", why); }

std::string version(int number) { return cat(number / 1000, ".", number % 1000 / 10); }

int count_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0) refuse("no NVIDIA driver is installed (libcuda.so.1 is not there)");
  if (status == cudaErrorInsufficientDriver) {
    refuse(cat("the NVIDIA driver is for CUDA ", version(driver), ", this build of octavo needs ", version(runtime),
               ": update the driver"));
  }
  if (status == cudaSuccess || status == cudaErrorNoDevice) {
    refuse("the NVIDIA driver finds no GPU (none is there, or CUDA_VISIBLE_DEVICES hides it)");
  }
  refuse(cat("the NVIDIA driver cannot be used: ", cudaGetErrorName(status), " (", cudaGetErrorString(status), ")"));
}

cudaDeviceProp properties(int ordinal) {
  cudaDeviceProp p{};
  check(cudaGetDeviceProperties(&p, ordinal), "reading the GPU's properties");
  return p;
}

std::string isa(const cudaDeviceProp& p) { return cat("sm_", p.major, p.minor); }

}  // namespace

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> out;
  std::string old;
  int before = 0;
  for (int i = 0, count = count_devices(); i < count; ++i) {
    if (i == 0) cudaGetDevice(&before);
    const cudaDeviceProp p = properties(i);
    DeviceInfo info{p.name, isa(p), p.totalGlobalMem, 0};
    if (p.major < kOldestMajor) {
      old = cat("the GPU is ", info.name, " (", info.isa, "), octavo needs sm_80 or newer");
      continue;
    }
    check(cudaSetDevice(i), "choosing the GPU");
    size_t total = 0;
    check(cudaMemGetInfo(&info.free_bytes, &total), "asking for the GPU's free memory");
    out.push_back(std::move(info));
  }
  check(cudaSetDevice(before), "choosing the GPU");
  if (out.empty()) refuse(old);
  return out;
}

DeviceGuard::DeviceGuard(int ordinal) {
  check(cudaGetDevice(&before_), "asking for the GPU");
  check(cudaSetDevice(ordinal), "choosing the GPU");
}
DeviceGuard::~DeviceGuard() { cudaSetDevice(before_); }

DeviceProperties open_device(int ordinal) {
  const int count = count_devices();
  if (ordinal < 0 || ordinal >= count) {
    refuse(cat("there is no GPU ", ordinal, ": the driver finds ", count));
  }
  const cudaDeviceProp p = properties(ordinal);
  if (p.major < kOldestMajor) {
    refuse(cat("GPU ", ordinal, " is ", p.name, " (", isa(p), "), octavo needs sm_80 or newer"));
  }
  return {ordinal,         p.major, p.minor, p.multiProcessorCount, static_cast<int>(p.sharedMemPerBlockOptin),
          p.totalGlobalMem};
}

}  // namespace octavo::cuda
