#pragma once
#include <cstdint>
#include <memory>
#include <span>

namespace octavo {

// Which tokens may come next: a grammar, a JSON schema, a regular expression. Filled on a helper thread while the
// forward pass runs; the sampler applies the mask together with allowed_token_ids.
class Constraint {
 public:
  virtual ~Constraint() = default;
  virtual std::unique_ptr<Constraint> fork() const = 0;
  // Bit i % 32 of word i / 32 is set where token i may come next.
  virtual void fill_mask(std::span<uint32_t> bits) = 0;  // [(vocab + 31) / 32]
  virtual bool accept(int32_t token) = 0;                // false: not allowed here, nothing changed
  virtual void rollback(int tokens) = 0;                 // undoes the last accepts
  virtual bool done() const = 0;                         // only an end token may follow
};

}  // namespace octavo
