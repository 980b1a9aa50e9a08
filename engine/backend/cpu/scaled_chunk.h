#pragma once
#include "backend/cpu/avx2_ops.h"

namespace octavo {
namespace {

template <class V>
struct Lanes {
  typedef uint16_t Words __attribute__((vector_size(sizeof(V))));
  typedef uint8_t Bytes __attribute__((vector_size(sizeof(V))));
};
template <class V>
OCTAVO_INLINE V shift_right(V v, int n) {
  return reinterpret_cast<V>(reinterpret_cast<typename Lanes<V>::Words>(v) >> n);
}
template <class V>
OCTAVO_INLINE V shift_left(V v, int n) {
  return reinterpret_cast<V>(reinterpret_cast<typename Lanes<V>::Words>(v) << n);
}
template <class V>
OCTAVO_INLINE V masked(V v, uint8_t mask) {
  return reinterpret_cast<V>(reinterpret_cast<typename Lanes<V>::Bytes>(v) & mask);
}
// The bits `mask` << at of every byte, moved to bit `to`.
template <class V>
OCTAVO_INLINE V bits(V v, int at, int to, uint8_t mask) {
  return masked(at > to ? shift_right(v, at - to) : shift_left(v, to - at), static_cast<uint8_t>(mask << to));
}

// Codes of chunk c of a group of scaled_blocks.h, one per byte. load(offset of 32 bytes in the group).
template <class G, class Load>
OCTAVO_INLINE auto scaled_chunk(int c, Load load) {
  if constexpr (requires(G g) { g.pairs; }) {
    auto codes = bits(load(offsetof(G, pairs) + 32 * (c / 4)), 2 * (c % 4), 0, 3);
    if constexpr (requires(G g) { g.high; }) codes |= bits(load(offsetof(G, high)), c, 2, 1);
    return codes;
  } else {
    auto codes = bits(load(offsetof(G, codes) + 32 * (c / 2)), 4 * (c % 2), 0, 15);
    if constexpr (requires(G g) { g.high; }) codes |= bits(load(offsetof(G, high)), c, 4, 1);
    if constexpr (requires(G g) { g.high_pairs; }) {
      codes |= bits(load(offsetof(G, high_pairs) + 32 * (c / 4)), 2 * (c % 4), 4, 3);
    }
    return codes;
  }
}

// The codes of the weights that meet one activation, as int32. load as above, shift(v, n): 32-bit lanes to the right.
template <class G, class Load, class Shift>
OCTAVO_INLINE auto scaled_column(int place, Load load, Shift shift) {
  const int c = place / 4, byte = place % 4 * 8;
  const auto at = [&](size_t offset, int bit, int mask, int to) {
    auto v = shift(load(offset), byte + bit);
    typedef int32_t Ints __attribute__((vector_size(sizeof(v))));
    return reinterpret_cast<decltype(v)>((reinterpret_cast<Ints>(v) & mask) << to);
  };
  if constexpr (requires(G g) { g.pairs; }) {
    auto codes = at(offsetof(G, pairs) + 32 * (c / 4), 2 * (c % 4), 3, 0);
    if constexpr (requires(G g) { g.high; }) codes |= at(offsetof(G, high), c, 1, 2);
    return codes;
  } else {
    auto codes = at(offsetof(G, codes) + 32 * (c / 2), 4 * (c % 2), 15, 0);
    if constexpr (requires(G g) { g.high; }) codes |= at(offsetof(G, high), c, 1, 4);
    if constexpr (requires(G g) { g.high_pairs; }) {
      codes |= at(offsetof(G, high_pairs) + 32 * (c / 4), 2 * (c % 4), 3, 4);
    }
    return codes;
  }
}

// Largest code; what the integers of a group hold besides it.
template <class G>
constexpr int max_code() {
  constexpr bool high = requires(G g) { g.high; };
  if (requires(G g) { g.pairs; }) return high ? 7 : 3;
  if (requires(G g) { g.high_pairs; }) return 63;
  return high ? 31 : 15;
}
template <class G>
constexpr bool kHalfScales = requires(G g) { g.pairs; } || requires(G g) { g.high_pairs; };
template <class G>
constexpr bool kGroupScales = requires(G g) { g.scale; } || requires(G g) { g.scales; };
template <class W>
constexpr bool kMinima = requires(W w) { w.min; };

}  // namespace
}  // namespace octavo
