#include "grammar/marked_grammar.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/errors.h"

namespace octavo {

namespace {

class MarkedConstraint final : public Constraint {
 public:
  explicit MarkedConstraint(std::shared_ptr<const MarkedGrammar> grammar) : grammar_(std::move(grammar)) {}

  std::unique_ptr<Constraint> fork() const override {
    auto copy = std::make_unique<MarkedConstraint>(grammar_);
    copy->matched_ = matched_;
    if (inner_) copy->inner_ = inner_->fork();
    copy->inner_tokens_ = inner_tokens_;
    return copy;
  }

  void fill_mask(std::span<uint32_t> bits) override {
    if (inner_) {
      inner_->fill_mask(bits);
    } else {
      grammar_->fill_mask(matched_.empty() ? 0 : matched_.back(), bits);
    }
  }

  void accept(int32_t token) override {
    if (inner_) {
      inner_->accept(token);
      ++inner_tokens_;
      return;
    }
    matched_.push_back(grammar_->advance(matched_.empty() ? 0 : matched_.back(), token));
    if (matched_.back() == grammar_->marker_length()) inner_ = grammar_->inner().start();
  }

  void rollback(int tokens) override {
    const int inside = std::min(tokens, inner_tokens_);
    if (inside > 0) inner_->rollback(inside);
    inner_tokens_ -= inside;
    if (inside == tokens) return;
    inner_.reset();
    matched_.resize(matched_.size() - static_cast<size_t>(tokens - inside));
  }

  bool done() const override { return inner_ && inner_->done(); }

  void list_forced(std::vector<int32_t>& tokens) override {
    if (inner_) inner_->list_forced(tokens);
  }

 private:
  std::shared_ptr<const MarkedGrammar> grammar_;
  std::vector<uint32_t> matched_;  // after each token up to the marker
  std::unique_ptr<Constraint> inner_;
  int inner_tokens_ = 0;
};

}  // namespace

MarkedGrammar::MarkedGrammar(std::shared_ptr<const Grammar> inner, std::string marker,
                             std::shared_ptr<const TokenTable> table, std::vector<int32_t> end_tokens)
    : inner_(std::move(inner)),
      marker_(std::move(marker)),
      table_(std::move(table)),
      excluded_(std::move(end_tokens)),
      fallback_(marker_.size() + 1, 0) {
  if (marker_.empty()) throw Error(ErrorCode::kInvalidArgument, "start_after", "start_after must not be empty");
  for (size_t i = 1, border = 0; i < marker_.size(); ++i) {
    while (border > 0 && marker_[i] != marker_[border]) border = fallback_[border];
    border += marker_[i] == marker_[border];
    fallback_[i + 1] = static_cast<uint32_t>(border);
  }
  for (int32_t id = 0; id < vocab(); ++id) {
    const std::string_view token = table_->token(id);
    const size_t at = token.find(marker_);
    if (at != std::string_view::npos && !only_blanks_after(token, at + marker_.size())) excluded_.push_back(id);
  }
}

std::unique_ptr<Constraint> MarkedGrammar::start() const {
  return std::make_unique<MarkedConstraint>(std::static_pointer_cast<const MarkedGrammar>(shared_from_this()));
}

uint32_t MarkedGrammar::advance(uint32_t matched, int32_t token) const {
  for (const char c : table_->token(token)) {
    if (matched == marker_.size()) break;
    while (matched > 0 && c != marker_[matched]) matched = fallback_[matched];
    matched += c == marker_[matched];
  }
  return matched;
}

void MarkedGrammar::fill_mask(uint32_t matched, std::span<uint32_t> bits) const {
  std::ranges::fill(bits, 0xFFFFFFFFu);
  const auto exclude = [&](int32_t id) { bits[id / 32] &= ~(1u << (id % 32)); };
  for (const int32_t id : excluded_) exclude(id);
  if (matched == 0) return;
  for (uint32_t have = matched; have > 0; have = fallback_[have]) {
    const std::string_view rest = std::string_view(marker_).substr(have);
    for (int32_t id = 0; id < vocab(); ++id) {
      const std::string_view token = table_->token(id);
      if (token.starts_with(rest) && !only_blanks_after(token, rest.size())) exclude(id);
    }
  }
}

bool MarkedGrammar::only_blanks_after(std::string_view token, size_t end) const {
  return token.find_first_not_of(" \t\r\n", end) == std::string_view::npos;
}

}  // namespace octavo
