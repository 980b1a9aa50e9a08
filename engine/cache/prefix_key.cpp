#include "cache/prefix_key.h"

namespace octavo {
namespace {

// Both halves of a 64 x 64 product, folded: one multiplication spreads every input bit.
inline uint64_t fold(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

constexpr uint64_t kMulHi = 0x9e3779b97f4a7c15u;  // odd constants: 2^64 over the golden ratio, over pi
constexpr uint64_t kMulLo = 0x517cc1b727220a95u;

}  // namespace

PrefixKey prefix_key(const PrefixKey& parent, uint64_t ns, std::span<const int32_t> tokens) {
  uint64_t hi = fold(parent.hi ^ kMulHi, ns ^ kMulLo);
  uint64_t lo = fold(parent.lo ^ kMulLo, ns + tokens.size() + kMulHi);
  size_t i = 0;
  for (; i + 1 < tokens.size(); i += 2) {
    const uint64_t pair = static_cast<uint32_t>(tokens[i]) | uint64_t{static_cast<uint32_t>(tokens[i + 1])} << 32;
    hi = fold(hi ^ pair, kMulHi);
    lo = fold(lo + pair, kMulLo) ^ pair;
  }
  if (i < tokens.size()) {
    hi = fold(hi ^ static_cast<uint32_t>(tokens[i]), kMulHi);
    lo = fold(lo + static_cast<uint32_t>(tokens[i]), kMulLo);
  }
  return {hi, lo};
}

}  // namespace octavo
