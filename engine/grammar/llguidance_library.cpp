#include "grammar/llguidance_library.h"

#include <dlfcn.h>

#include <string_view>

#include "base/errors.h"
#include "base/format.h"

namespace octavo {

namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::kUnsupported, "llguidance", cat("the C interface of llguidance cannot be used: ", why));
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) refuse(cat("its library has no function ", name));
}

}  // namespace

// The library is never unloaded: its threads and the interpreter may hold on to it.
LlguidanceLibrary::LlguidanceLibrary(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) refuse(dlerror());
  find(library, "llg_get_version", get_version);
  // "llguidance@1.9.1 derivre@0.4.0"
  const std::string_view told = get_version();
  const size_t at = told.find("llguidance@");
  if (at == std::string_view::npos) refuse(cat("it calls its version '", told, "'"));
  const std::string_view version = told.substr(at + 11);
  version_ = version.substr(0, version.find(' '));
  if (!version_.starts_with(cat(kVersions, ".")))
    refuse(cat("it is version ", version_, "; known is ", kVersions, ".*"));
  find(library, "llg_new_tokenizer_v2", new_tokenizer);
  find(library, "llg_free_tokenizer", free_tokenizer);
  find(library, "llg_tokenize_bytes", tokenize_bytes);
  find(library, "llg_constraint_init_set_defaults", set_defaults);
  find(library, "llg_new_matcher", new_matcher);
  find(library, "llg_clone_matcher", clone_matcher);
  find(library, "llg_free_matcher", free_matcher);
  find(library, "llg_matcher_get_error", get_error);
  find(library, "llg_matcher_compute_mask_into", compute_mask_into);
  find(library, "llg_matcher_consume_token", consume_token);
  find(library, "llg_matcher_compute_ff_tokens", compute_ff_tokens);
  find(library, "llg_matcher_rollback", rollback);
  find(library, "llg_matcher_is_stopped", is_stopped);
  find(library, "llg_matcher_get_mask_byte_size", mask_byte_size);
}

}  // namespace octavo
