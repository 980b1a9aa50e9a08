#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace octavo {

// Where one sequence stands in a grammar: which tokens may come next. Used by one thread at a time. A function that
// throws leaves it of no use.
class Constraint {
 public:
  virtual ~Constraint() = default;
  virtual std::unique_ptr<Constraint> fork() const = 0;
  // Bit i % 32 of word i / 32 is set where token i may come next; end tokens only where the text may end.
  virtual void fill_mask(std::span<uint32_t> bits) = 0;  // [(vocab + 31) / 32]
  virtual void accept(int32_t token) = 0;                // throws Error where the mask excludes it
  virtual void rollback(int tokens) = 0;                 // undoes the last accepts
  virtual bool done() const = 0;                         // nothing but an end token may follow
  // Appends the tokens that follow next whatever is drawn: each would be alone in its mask.
  virtual void list_forced(std::vector<int32_t>& tokens) = 0;
};

// What an output must look like: a JSON schema, a regular expression, a context-free grammar. Immutable; shared by
// requests, whose C++ owners share it without its Python object.
class Grammar : public std::enable_shared_from_this<Grammar> {
 public:
  virtual ~Grammar() = default;
  virtual std::unique_ptr<Constraint> start() const = 0;
  virtual int vocab() const = 0;  // of the model it was compiled for
};

}  // namespace octavo
