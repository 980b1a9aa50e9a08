#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sample/constraint.h"
#include "text/token_table.h"

namespace octavo {

// A grammar for what follows a marker, such as the end of a thought. Until the marker stands in the text everything but
// an end token is allowed; blanks that share a token with its end belong to it.
class MarkedGrammar final : public Grammar {
 public:
  // The marker is not empty; it is looked for in the bytes of the tokens, special ones too.
  MarkedGrammar(std::shared_ptr<const Grammar> inner, std::string marker, std::shared_ptr<const TokenTable> table,
                std::vector<int32_t> end_tokens);

  std::unique_ptr<Constraint> start() const override;
  int vocab() const override { return inner_->vocab(); }

  // For its constraints, which hold a share of it.
  const Grammar& inner() const { return *inner_; }
  size_t marker_length() const { return marker_.size(); }
  // How much of the marker the text ends with after one more token; all of it: the marker was found.
  uint32_t advance(uint32_t matched, int32_t token) const;
  // The mask where the text ends with so much of the marker.
  void fill_mask(uint32_t matched, std::span<uint32_t> bits) const;

 private:
  bool only_blanks_after(std::string_view token, size_t end) const;

  std::shared_ptr<const Grammar> inner_;
  std::string marker_;
  std::shared_ptr<const TokenTable> table_;
  std::vector<int32_t> excluded_;   // end tokens, and tokens that hold the marker and more than blanks after it
  std::vector<uint32_t> fallback_;  // [marker + 1] of Knuth, Morris and Pratt (1977)
};

}  // namespace octavo
