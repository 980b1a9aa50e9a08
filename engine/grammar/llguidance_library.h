#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace octavo {

// The C structures of llguidance that are passed by pointer. Names and order are its own.
struct LlgTokenizer;
struct LlgMatcher;

using LlgTokenizeFn = size_t (*)(const void* user_data, const uint8_t* bytes, size_t num_bytes, uint32_t* tokens,
                                 size_t capacity);

struct LlgTokenizerInit {
  size_t struct_size = sizeof(LlgTokenizerInit);
  uint32_t vocab_size = 0;
  uint32_t eos = 0;
  const uint32_t* token_lengths = nullptr;
  const uint8_t* token_bytes = nullptr;
  const char* tokenizer_json = nullptr;
  bool tokenize_assumes_string = false;
  LlgTokenizeFn tokenize = nullptr;
  bool greedy = false;  // no canonical tokenizer: no text is ever forced
  const void* user_data = nullptr;
  const char* const* slices = nullptr;
  const uint32_t* more_eos = nullptr;
  uint32_t num_more_eos = 0;
};

struct LlgLimits {
  size_t max_items_in_row;
  uint64_t initial_lexer_fuel;
  uint64_t step_lexer_fuel;
  size_t step_max_items;
  size_t max_lexer_states;
  size_t max_grammar_size;
  bool precompute_large_lexemes;
  bool verbose_errors;
};

struct LlgMatcherInit {
  const LlgTokenizer* tokenizer;
  uint32_t log_buffer_level;
  uint32_t log_stderr_level;
  bool ff_tokens;
  bool backtrack;
  LlgLimits limits;
  unsigned char reserved[192];  // a later minor version may write fields that we do not know
};

// llguidance's C functions, found in the shared library of its Python wheel. The wheel promises no such interface, so
// the version is checked and every function must be there.
class LlguidanceLibrary {
 public:
  static constexpr const char* kVersions = "1.9";

  // Throws Error(kUnsupported, "llguidance", ...): it cannot be loaded, is of another version or lacks a function.
  explicit LlguidanceLibrary(const std::string& path);

  const std::string& version() const { return version_; }

  LlgTokenizer* (*new_tokenizer)(const LlgTokenizerInit*, char* error, size_t error_size);
  void (*free_tokenizer)(LlgTokenizer*);
  size_t (*tokenize_bytes)(const LlgTokenizer*, const uint8_t*, size_t, uint32_t*, size_t);
  void (*set_defaults)(LlgMatcherInit*, const LlgTokenizer*);
  LlgMatcher* (*new_matcher)(const LlgMatcherInit*, const char* kind, const char* text);
  LlgMatcher* (*clone_matcher)(const LlgMatcher*);
  void (*free_matcher)(LlgMatcher*);
  const char* (*get_error)(LlgMatcher*);
  int32_t (*compute_mask_into)(LlgMatcher*, uint32_t*, size_t num_bytes);
  int32_t (*consume_token)(LlgMatcher*, uint32_t);
  int32_t (*compute_ff_tokens)(LlgMatcher*, uint32_t*, size_t);
  int32_t (*rollback)(LlgMatcher*, size_t);
  bool (*is_stopped)(const LlgMatcher*);
  size_t (*mask_byte_size)(const LlgMatcher*);

 private:
  const char* (*get_version)();
  std::string version_;
};

}  // namespace octavo
