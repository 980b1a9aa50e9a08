#include "text/piece_merges.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/errors.h"
#include "base/format.h"

namespace octavo {

namespace {

// Hash of a text as a polynomial, so that those of all its beginnings and ends follow from each other.
constexpr uint64_t kBase = 0x9e3779b97f4a7c15;

uint64_t extend(uint64_t hash, char c) { return hash * kBase + static_cast<uint8_t>(c) + 1; }

uint64_t scatter(uint64_t hash) {
  hash ^= hash >> 32;
  hash *= 0xd6e8feb86659fd93;
  return hash ^ (hash >> 32);
}

bool starts_character(char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }

// Index of each piece by its text; open addressing, at most half full. A slot holds part of the hash as well, so that
// a text that is no piece is compared with none.
class PieceIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  explicit PieceIndex(std::span<const std::string_view> pieces)
      : pieces_(pieces), slots_(std::bit_ceil(2 * pieces.size() + 1)) {
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].empty()) continue;
      uint64_t hash = 0;
      for (const char c : pieces[i]) hash = extend(hash, c);
      slots_[slot_of(pieces[i], scatter(hash))] = {static_cast<uint32_t>(i), tag(scatter(hash))};
    }
  }

  uint32_t find(std::string_view text, uint64_t hash) const { return slots_[slot_of(text, scatter(hash))].piece; }

 private:
  struct Slot {
    uint32_t piece = kNone;
    uint32_t tag = 0;
  };

  static uint32_t tag(uint64_t scattered) { return static_cast<uint32_t>(scattered >> 32); }

  // Where `text` is, or would be.
  size_t slot_of(std::string_view text, uint64_t scattered) const {
    const size_t mask = slots_.size() - 1;
    size_t at = scattered & mask;
    while (slots_[at].piece != kNone && (slots_[at].tag != tag(scattered) || pieces_[slots_[at].piece] != text)) {
      at = (at + 1) & mask;
    }
    return at;
  }

  std::span<const std::string_view> pieces_;
  std::vector<Slot> slots_;
};

// Longer pieces, which no trained vocabulary has, keep all their merges: finding the one takes quadratic time.
constexpr size_t kMaxSearchedBytes = 256;

// Finds the merges that make one piece after the other; keeps its buffers.
class MergeFinder {
 public:
  MergeFinder(std::span<const std::string_view> pieces, std::span<const uint32_t> ranks)
      : index_(pieces), ranks_(ranks) {}

  // Appends to `merges` what makes `text`.
  void append(std::string_view text, std::vector<PieceMerge>& merges) {
    begin(text);
    const size_t before = merges.size();
    for (size_t cut = text.size() - 1; cut > 0; --cut) {
      if (!starts_character(text[cut])) continue;
      const uint32_t left = find(0, cut);
      if (left == PieceIndex::kNone) continue;
      const uint32_t right = find(cut, text.size());
      if (right != PieceIndex::kNone) merges.push_back({left, right});
    }
    if (merges.size() - before < 2 || text.size() > kMaxSearchedBytes) return;
    merges.resize(before);
    if (const std::optional<PieceMerge> last = last_merge()) merges.push_back(*last);
  }

 private:
  void begin(std::string_view text) {
    text_ = text;
    beginnings_.assign(1, 0);
    for (const char c : text) beginnings_.push_back(extend(beginnings_.back(), c));
    while (powers_.size() <= text.size()) powers_.push_back(powers_.back() * kBase);
  }

  uint32_t find(size_t from, size_t to) const {
    return index_.find(text_.substr(from, to - from), beginnings_[to] - beginnings_[from] * powers_[to - from]);
  }

  // Rank of what the symbols at `i` and `i + 1` make together; kNone if that is no piece, or all of the text.
  uint32_t rank_of_union(size_t i) const {
    const size_t from = edges_[i], to = edges_[i + 2];
    if ((from == 0 && to == text_.size()) || !known_[i] || !known_[i + 1]) return PieceIndex::kNone;
    const uint32_t piece = find(from, to);
    return piece == PieceIndex::kNone ? PieceIndex::kNone : ranks_[piece];
  }

  // What BPE joins last when the text stands alone; nothing if it never gets that far. Inside a longer text no other
  // merge can make it: until then nothing has been joined across its ends, so inside it all went as when alone.
  std::optional<PieceMerge> last_merge() {
    edges_.clear();
    for (size_t i = 0; i < text_.size(); ++i) {
      if (starts_character(text_[i])) edges_.push_back(i);
    }
    edges_.push_back(text_.size());
    known_.clear();
    for (size_t i = 0; i + 1 < edges_.size(); ++i)
      known_.push_back(find(edges_[i], edges_[i + 1]) != PieceIndex::kNone);
    unions_.clear();
    for (size_t i = 0; i + 2 < edges_.size(); ++i) unions_.push_back(rank_of_union(i));
    while (edges_.size() > 3) {
      const auto best = std::min_element(unions_.begin(), unions_.end());
      if (*best == PieceIndex::kNone) return std::nullopt;
      const size_t at = static_cast<size_t>(best - unions_.begin());
      edges_.erase(edges_.begin() + static_cast<ptrdiff_t>(at) + 1);
      known_.erase(known_.begin() + static_cast<ptrdiff_t>(at));  // the union is known, as both are
      unions_.erase(best);
      if (at > 0) unions_[at - 1] = rank_of_union(at - 1);
      if (at < unions_.size()) unions_[at] = rank_of_union(at);
    }
    if (!known_[0] || !known_[1]) return std::nullopt;
    return PieceMerge{find(0, edges_[1]), find(edges_[1], text_.size())};
  }

  PieceIndex index_;
  std::span<const uint32_t> ranks_;
  std::string_view text_;
  std::vector<uint64_t> beginnings_;  // hash of the first i bytes
  std::vector<uint64_t> powers_ = {1};
  std::vector<size_t> edges_;     // where symbols start, and the end
  std::vector<uint8_t> known_;    // whether each symbol is a piece
  std::vector<uint32_t> unions_;  // rank of each two neighbours together
};

}  // namespace

std::vector<PieceMerge> piece_merges(std::span<const std::string_view> pieces, std::span<const float> scores) {
  if (pieces.size() != scores.size() || pieces.size() >= PieceIndex::kNone) {
    throw Error(ErrorCode::kCorruptFile, "scores", cat(scores.size(), " scores for ", pieces.size(), " pieces"));
  }
  for (size_t i = 0; i < scores.size(); ++i) {
    if (std::isnan(scores[i])) throw Error(ErrorCode::kCorruptFile, "scores", cat("score ", i, " is not a number"));
  }
  std::vector<uint32_t> order(pieces.size()), ranks(pieces.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
  for (size_t i = 0; i < order.size(); ++i) ranks[order[i]] = static_cast<uint32_t>(i);
  MergeFinder finder(pieces, ranks);
  std::vector<PieceMerge> merges;
  for (const uint32_t i : order) {
    if (!pieces[i].empty()) finder.append(pieces[i], merges);
  }
  return merges;
}

}  // namespace octavo
