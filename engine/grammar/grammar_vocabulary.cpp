#include "grammar/grammar_vocabulary.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "base/format.h"

namespace octavo {

namespace {

constexpr char kControlMarker = '\xFF';  // starts the bytes of tokens that no text stands for
constexpr uint32_t kNoToken = 0xFFFFFFFFu;

size_t tokenize(const void* self, const uint8_t* bytes, size_t num_bytes, uint32_t* tokens, size_t capacity) {
  std::vector<uint32_t> ids;
  static_cast<const ForcedTokenizer*>(self)->tokenize({reinterpret_cast<const char*>(bytes), num_bytes}, ids);
  std::copy_n(ids.begin(), std::min(ids.size(), capacity), tokens);
  return ids.size();
}

}  // namespace

GrammarVocabulary::GrammarVocabulary(std::shared_ptr<const LlguidanceLibrary> library,
                                     std::shared_ptr<const TokenTable> table, const std::vector<TokenKind>& kinds,
                                     std::vector<int32_t> end_tokens, std::optional<WordSplit> forced)
    : library_(std::move(library)),
      table_(std::move(table)),
      vocab_(static_cast<int>(kinds.size())),
      end_tokens_(std::move(end_tokens)),
      tokenizer_(table_, kinds, forced.value_or(WordSplit::kBlankJoinsWord)),
      forces_(forced.has_value()) {
  std::string bytes;
  std::vector<uint32_t> lengths;
  lengths.reserve(kinds.size());
  for (size_t i = 0; i < kinds.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const size_t before = bytes.size();
    const std::string_view own = table_->token(id);
    if (kinds[i] == TokenKind::kControl || std::ranges::count(end_tokens_, id) > 0) {
      bytes += kControlMarker;
      bytes += own.empty() ? cat("<[", id, "]>") : std::string(own);
    } else {
      bytes += own;
    }
    lengths.push_back(static_cast<uint32_t>(bytes.size() - before));
  }
  const std::vector<uint32_t> ends(end_tokens_.begin(), end_tokens_.end());
  LlgTokenizerInit init;
  init.vocab_size = static_cast<uint32_t>(kinds.size());
  init.eos = ends.empty() ? kNoToken : ends[0];
  init.token_lengths = lengths.data();
  init.token_bytes = reinterpret_cast<const uint8_t*>(bytes.data());
  init.greedy = !forces_;
  init.tokenize = forces_ ? tokenize : nullptr;
  init.user_data = &tokenizer_;
  if (ends.size() > 1) {
    init.more_eos = ends.data() + 1;
    init.num_more_eos = static_cast<uint32_t>(ends.size() - 1);
  }
  char error[512] = "";
  handle_ = library_->new_tokenizer(&init, error, sizeof error);
  if (handle_ == nullptr)
    throw Error(ErrorCode::kUnsupported, "tokenizer", cat("grammars cannot use this tokenizer: ", error));
}

GrammarVocabulary::~GrammarVocabulary() { library_->free_tokenizer(handle_); }

}  // namespace octavo
