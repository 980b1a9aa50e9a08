#include "grammar/forced_tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace octavo {

namespace {

constexpr size_t kLongestWord = 256;
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Length of the first word of a text.
size_t word_length(std::string_view text, WordSplit split) {
  size_t spaces = 0;
  while (spaces < std::min(text.size(), kLongestWord) && is_space(text[spaces])) ++spaces;
  if (spaces == text.size() || spaces == kLongestWord) return spaces;
  if (split == WordSplit::kBlankJoinsWord) {
    if (spaces > 1) return text[spaces - 1] == ' ' ? spaces - 1 : spaces;
    if (spaces == 1 && text[0] != ' ') return 1;
  }
  size_t end = spaces;
  while (end < text.size() && !is_space(text[end]) && end < kLongestWord) ++end;
  return std::max<size_t>(end, 1);
}

size_t character_length(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return std::min(length, text.size());
}

}  // namespace

ForcedTokenizer::ForcedTokenizer(std::shared_ptr<const TokenTable> table, const std::vector<TokenKind>& kinds,
                                 WordSplit split)
    : table_(std::move(table)), split_(split) {
  ids_.reserve(kinds.size());
  for (const TokenKind wanted : {TokenKind::kText, TokenKind::kByte}) {
    for (size_t i = 0; i < kinds.size(); ++i) {
      const std::string_view bytes = table_->token(static_cast<int32_t>(i));
      if (kinds[i] == wanted && !bytes.empty()) ids_.emplace(bytes, static_cast<uint32_t>(i));
    }
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    const std::string_view bytes = table_->token(static_cast<int32_t>(i));
    if (kinds[i] == TokenKind::kAdded && !bytes.empty())
      added_[static_cast<uint8_t>(bytes[0])].push_back(static_cast<int32_t>(i));
  }
}

int32_t ForcedTokenizer::added_at(std::string_view text) const {
  int32_t best = -1;
  for (const int32_t id : added_[static_cast<uint8_t>(text[0])]) {
    if (text.starts_with(table_->token(id)) && (best < 0 || table_->token(id).size() > table_->token(best).size()))
      best = id;
  }
  return best;
}

void ForcedTokenizer::tokenize(std::string_view text, std::vector<uint32_t>& ids) const {
  const size_t seen = std::min(text.size(), kMostBytes + kLongestWord);  // no word that is taken ends behind it
  size_t begin = 0;
  for (size_t i = 0; i < seen && begin < kMostBytes;) {
    const int32_t added = added_at(text.substr(i));
    if (added < 0) {
      ++i;
      continue;
    }
    plain(text.substr(begin, i - begin), ids);
    ids.push_back(static_cast<uint32_t>(added));
    begin = i += table_->token(added).size();
  }
  if (begin < kMostBytes) plain(text.substr(begin), ids, kMostBytes - begin);
}

void ForcedTokenizer::plain(std::string_view text, std::vector<uint32_t>& ids, size_t most) const {
  for (size_t taken = 0; !text.empty() && taken < most;) {
    const size_t length = word_length(text, split_);
    word(text.substr(0, length), ids);
    text.remove_prefix(length);
    taken += length;
  }
}

void ForcedTokenizer::word(std::string_view text, std::vector<uint32_t>& ids) const {
  const auto id_of = [&](size_t begin, size_t end) {
    const auto it = ids_.find(text.substr(begin, end - begin));
    return it == ids_.end() ? kNone : it->second;
  };
  std::vector<size_t> ends;  // of the pieces, which start where the one before ends
  for (size_t i = 0; i < text.size();) {
    const size_t length = character_length(text.substr(i));
    if (length > 1 && id_of(i, i + length) == kNone) {
      for (size_t b = 1; b <= length; ++b) ends.push_back(i + b);
    } else {
      ends.push_back(i + length);
    }
    i += length;
  }
  const auto begin_of = [&](size_t piece) { return piece == 0 ? 0 : ends[piece - 1]; };
  const auto pair_of = [&](size_t piece) { return id_of(begin_of(piece), ends[piece + 1]); };
  std::vector<uint32_t> pairs;  // what each piece and the next make together
  for (size_t i = 0; i + 1 < ends.size(); ++i) pairs.push_back(pair_of(i));
  while (!pairs.empty()) {
    const auto best = std::ranges::min_element(pairs);
    if (*best == kNone) break;
    const auto at = static_cast<size_t>(best - pairs.begin());
    ends.erase(ends.begin() + static_cast<std::ptrdiff_t>(at));
    pairs.erase(best);
    if (at > 0) pairs[at - 1] = pair_of(at - 1);
    if (at < pairs.size()) pairs[at] = pair_of(at);
  }
  for (size_t i = 0; i < ends.size(); ++i) {
    const uint32_t id = id_of(begin_of(i), ends[i]);
    if (id != kNone) ids.push_back(id);
  }
}

}  // namespace octavo
