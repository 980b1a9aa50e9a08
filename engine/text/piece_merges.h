#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace octavo {

// Two pieces of a vocabulary, by index, whose texts one after the other are a third.
struct PieceMerge {
  uint32_t left = 0;
  uint32_t right = 0;
};

// The merges of a vocabulary that has scores in place of merges, the best scored union first. BPE by scores
// (SentencePiece) or by ranks (tiktoken) joins the neighbours whose union scores best, leftmost first; BPE by this
// table does the same. Only the merge that really makes a piece is in it, which is one at most. An empty piece takes no
// part. Error(kCorruptFile, "scores", ...) for a score that is not a number.
std::vector<PieceMerge> piece_merges(std::span<const std::string_view> pieces, std::span<const float> scores);

}  // namespace octavo
