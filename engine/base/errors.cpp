#include "base/errors.h"

namespace octavo {

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kContextLength:
      return "context_length_exceeded";
    case ErrorCode::kCapacity:
      return "capacity";
    case ErrorCode::kOverloaded:
      return "overloaded";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kCorruptFile:
      return "corrupt_file";
    case ErrorCode::kOutOfMemory:
      return "out_of_memory";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kDeviceLost:
      return "device_lost";
    case ErrorCode::kShutdown:
      return "shutdown";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

}  // namespace octavo
