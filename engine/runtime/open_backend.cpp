#include "runtime/open_backend.h"

#include <charconv>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda_loader/backend_library.h"
#include "base/errors.h"
#include "base/format.h"

namespace octavo {
namespace {

// "cuda:1": device 1 of "cuda"
std::string split_ordinal(const std::string& device, int& ordinal) {
  const size_t colon = device.find(':');
  if (colon == std::string::npos) return device;
  const char* const end = device.data() + device.size();
  const auto [last, error] = std::from_chars(device.data() + colon + 1, end, ordinal);
  if (error != std::errc() || last != end || ordinal < 0) {
    throw Error(ErrorCode::kInvalidArgument, "device",
                cat("device must be auto, cpu, cuda or cuda:N with the number of a GPU, got ", device));
  }
  return device.substr(0, colon);
}

}  // namespace

std::unique_ptr<Backend> open_backend(const BackendChoice& choice) {
  if (choice.device == "cpu") return make_cpu_backend(choice.isa);
  if (choice.device == "auto") {
    if (!report_backend("cuda").why_not.empty()) return make_cpu_backend(choice.isa);
    return load_backend("cuda", {0, choice.fast});
  }
  BackendOptions options;
  options.fast = choice.fast;
  const std::string name = split_ordinal(choice.device, options.device);
  for (const char* known : kLoadableBackends) {
    if (name == known) return load_backend(name, options);
  }
  throw Error(ErrorCode::kInvalidArgument, "device",
              cat("device must be auto, cpu, cuda or cuda:N with the number of a GPU, got ", choice.device));
}

}  // namespace octavo
