#pragma once
#include <cstdint>
#include <span>

namespace octavo {

// A chained 128-bit key of a prefix. It finds candidates; it never decides identity.
struct PrefixKey {
  uint64_t hi = 0;
  uint64_t lo = 0;
  bool operator==(const PrefixKey&) const = default;
};

// The key of the block `tokens` in namespace `ns` after the prefix whose key is `parent`.
using PrefixKeyFn = PrefixKey (*)(const PrefixKey& parent, uint64_t ns, std::span<const int32_t> tokens);

PrefixKey prefix_key(const PrefixKey& parent, uint64_t ns, std::span<const int32_t> tokens);

}  // namespace octavo
