#pragma once
#include "sample/constraint.h"

// Even and odd token ids take turns, until `length` of them are there.
class TurnsGrammar final : public octavo::Grammar {
 public:
  TurnsGrammar(int vocab, int length) : vocab_(vocab), length_(length) {}
  std::unique_ptr<octavo::Constraint> start() const override;
  int vocab() const override { return vocab_; }

 private:
  int vocab_, length_;
};
