#include "turns_grammar.h"

#include <algorithm>

#include "base/errors.h"
#include "base/format.h"

using namespace octavo;

namespace {

class Turns final : public Constraint {
 public:
  Turns(int vocab, int length) : vocab_(vocab), length_(length) {}
  std::unique_ptr<Constraint> fork() const override { return std::make_unique<Turns>(*this); }
  void fill_mask(std::span<uint32_t> bits) override {
    std::ranges::fill(bits, 0u);
    for (int t = taken_ % 2; t < vocab_; t += 2) bits[t / 32] |= 1u << t % 32;
  }
  void accept(int32_t token) override {
    if (token % 2 != taken_ % 2) throw Error(ErrorCode::kInvalidArgument, "token", cat("it is not ", token, "'s turn"));
    ++taken_;
  }
  void rollback(int tokens) override { taken_ -= tokens; }
  bool done() const override { return taken_ >= length_; }
  void list_forced(std::vector<int32_t>&) override {}

 private:
  int vocab_, length_;
  int taken_ = 0;
};

}  // namespace

std::unique_ptr<Constraint> TurnsGrammar::start() const { return std::make_unique<Turns>(vocab_, length_); }
