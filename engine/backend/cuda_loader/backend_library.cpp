#include "backend/cuda_loader/backend_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/errors.h"
#include "base/format.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::kUnsupported, "device", why); }

// The folder of the extension, and where a link to it leads.
std::vector<fs::path> folders() {
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&report_backend), &self) == 0 || self.dli_fname == nullptr) return {};
  std::error_code error;
  const fs::path file = fs::absolute(self.dli_fname, error);
  std::vector<fs::path> out{file.parent_path()};
  const fs::path target = fs::canonical(file, error);
  if (!error && target.parent_path() != out[0]) out.push_back(target.parent_path());
  return out;
}

// Stays loaded: what it made may outlive its caller.
const BackendPlugin& plugin(const std::string& name) {
  std::string file = cat("liboctavo_", name, ".so");
  std::ranges::replace(file, '-', '_');
  for (const fs::path& folder : folders()) {
    std::error_code error;
    if (!fs::exists(folder / file, error)) continue;
    void* library = dlopen((folder / file).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) refuse(cat(file, " cannot be loaded: ", dlerror()));
    const auto function = reinterpret_cast<BackendPluginFunction>(dlsym(library, kBackendPluginSymbol));
    const BackendPlugin* found = function ? function() : nullptr;
    if (found == nullptr || std::strcmp(found->abi, OCTAVO_BACKEND_ABI) != 0) {
      refuse(cat(file, " belongs to another build of octavo (", found ? found->abi : "of no known kind",
                 "), this one is ", OCTAVO_BACKEND_ABI, ": install both from one wheel or build"));
    }
    return *found;
  }
  refuse(cat("this installation of octavo has no ", name, " backend (", file, "): see docs/cuda.md"));
}

}  // namespace

BackendReport report_backend(const std::string& name) {
  BackendReport report;
  report.name = name;
  try {
    report.devices = plugin(name).devices();
  } catch (const Error& e) {
    report.why_not = e.what();
  }
  return report;
}

std::unique_ptr<Backend> load_backend(const std::string& name, const BackendOptions& options) {
  if (std::ranges::find(kLoadableBackends, name) == std::end(kLoadableBackends)) {
    refuse(cat("there is no backend \"", name, "\""));
  }
  return plugin(name).make(options);
}

}  // namespace octavo
