#pragma once
#include <array>
#include <cstdint>

namespace octavo {

// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC '11).
inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// What a draw is for. Each purpose has its own stream, so that a new one never shifts the others.
enum class DrawPurpose : uint32_t { kToken = 0 };

// 64 uniform random bits that depend on these four values alone: never on the batch, the order or the thread.
inline uint64_t random_bits(uint64_t seed, int32_t position, uint32_t choice, DrawPurpose purpose) {
  const std::array<uint32_t, 4> r =
      philox4x32({static_cast<uint32_t>(position), choice, static_cast<uint32_t>(purpose), 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t{r[1]} << 32 | r[0];
}

}  // namespace octavo
