#pragma once
#include <sstream>
#include <string>

namespace octavo {

// Concatenates its arguments as text: cat("head_dim must be even, got ", 63).
template <class... Args>
std::string cat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

}  // namespace octavo
