#pragma once
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace octavo {

// What kind of thing went wrong. One mapping to Python exceptions lives in bind/, one to HTTP in the gateway.
enum class ErrorCode {
  kInvalidArgument,  // a parameter is out of range or malformed
  kContextLength,    // prompt (+ requested output) exceeds the model's window
  kCapacity,         // could never fit in the KV pool
  kOverloaded,       // queue limits
  kNotFound,         // file, tensor, request
  kUnsupported,      // architecture, format or feature that is not there
  kCorruptFile,
  kOutOfMemory,
  kCancelled,
  kShutdown,
  kDeviceLost,  // nothing works on the device any more in this process
  kInternal,
};

const char* error_code_name(ErrorCode code);  // "invalid_argument", ...

// Thrown across the engine. `param` names the field or thing; the message states value and limit.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string param, const std::string& message)
      : std::runtime_error(message), code_(code), param_(std::move(param)) {}
  ErrorCode code() const { return code_; }
  const std::string& param() const { return param_; }

 private:
  ErrorCode code_;
  std::string param_;
};

// Why a request was not accepted. Returned, not thrown: refusing is normal operation.
struct Refusal {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string param;
  std::string message;
  int64_t value = 0;
  int64_t limit = 0;
};

}  // namespace octavo
