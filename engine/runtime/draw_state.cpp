#include "runtime/draw_state.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "base/errors.h"
#include "base/format.h"
#include "sample/philox.h"
#include "sample/row_kernels.h"
#include "sample/sampler.h"

namespace octavo {

namespace {

bool penalized(const SamplingParams& p) {
  return p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f;
}

bool keeps_state(const SamplingParams& p) {
  return penalized(p) || !p.logit_bias.empty() || !p.bad_words.empty() || !p.allowed_token_ids.empty() ||
         p.min_tokens > 0;
}

// Arrays one after the other, first counted, then written.
class Layout {
 public:
  template <class T>
  size_t add(size_t count) {
    const size_t at = bytes_;
    bytes_ += (count * sizeof(T) + 15) / 16 * 16;
    return at;
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

template <class T>
void put(std::vector<std::byte>& host, size_t at, std::span<const T> values) {
  if (!values.empty()) std::memcpy(host.data() + at, values.data(), values.size_bytes());
}

}  // namespace

std::unique_ptr<DeviceMemory> DrawMemory::take(size_t bytes) {
  const size_t size = std::bit_ceil(std::max<size_t>(bytes, 256));
  auto& free = free_[size];
  if (free.empty()) return backend_.allocate(size);
  std::unique_ptr<DeviceMemory> memory = std::move(free.back());
  free.pop_back();
  return memory;
}

void DrawMemory::give_back(std::unique_ptr<DeviceMemory> memory) { free_[memory->size()].push_back(std::move(memory)); }

DrawRows::DrawRows(Backend& backend, Queue& queue, int vocab)
    : backend_(backend), queue_(queue), vocab_(vocab), memory_(std::make_shared<DrawMemory>(backend)) {}

DrawRow DrawRows::make(SampledSequence& s, int32_t position, int32_t last_token) {
  const SamplingParams& p = *s.params;
  const int32_t length = position - s.prompt_size;
  DrawRow row;
  row.num_best = s.num_best();
  if (p.beam_width > 0) {
    row.mode = DrawMode::kNone;
    return row;
  }
  if (keeps_state(p)) {
    // Drawn once more after a step that counted for nothing, the last token is there already.
    const bool there =
        s.on_device && (s.on_device->output_length == length || s.on_device->output_length == length - 1);
    if (!there) upload(s);
    row = s.on_device->row;
    row.num_best = s.num_best();
    if (s.on_device->output_length == length - 1) {
      row.last_token = last_token;
    } else if (s.on_device->output_length != length) {
      throw Error(
          ErrorCode::kInternal, "plan",
          cat("a token is drawn behind ", length, " tokens of output, and ", s.on_device->output_length, " are known"));
    }
    s.on_device->output_length = length;
  }
  row.output_length = length;
  if (length >= p.min_tokens) row.num_stops = 0;
  row.scored = s.scored ? 1 : 0;
  row.mode = is_greedy(p) ? DrawMode::kGreedy : DrawMode::kRandom;
  row.scale = 1.0f / p.temperature;
  row.top_k = p.top_k > 1 ? p.top_k : 0;
  row.top_p = p.top_p;
  if (p.min_p > 0.0f) row.min_weight = static_cast<uint32_t>(std::ceil(p.min_p * kWeightOne));
  if (row.mode == DrawMode::kRandom) row.random = random_bits(p.seed, position, s.choice, DrawPurpose::kToken);
  return row;
}

// All of a sequence's state, as the host knows it.
void DrawRows::upload(SampledSequence& s) {
  const SamplingParams& p = *s.params;
  auto state = std::make_shared<DrawState>(memory_);
  std::vector<TokenBias> biases;
  for (const auto& [token, bias] : p.logit_bias) biases.push_back({token, bias});
  std::ranges::stable_sort(biases, {}, &TokenBias::token);
  std::vector<int32_t> words, ends;
  for (const std::vector<int32_t>& word : p.bad_words) {
    words.insert(words.end(), word.begin(), word.end());
    ends.push_back(static_cast<int32_t>(words.size()));
  }
  std::vector<uint32_t> allowed(p.allowed_token_ids.empty() ? 0 : static_cast<size_t>(vocab_ + 31) / 32);
  for (const int32_t token : p.allowed_token_ids) allowed[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
  std::vector<SeenToken> seen;
  if (penalized(p))
    for (const TokenCount& c : s.state.counts()) seen.push_back({c.token, c.output, c.in_prompt ? 1 : 0});
  const auto num_seen = static_cast<int32_t>(seen.size());
  const auto room = static_cast<size_t>(std::max(p.max_tokens, 0)) + 1;  // for what is still to come
  const size_t seen_capacity = penalized(p) ? std::min(seen.size() + room, static_cast<size_t>(vocab_)) : 0;
  const std::span<const int32_t> output = s.state.output();

  Layout layout;
  const size_t bias_at = layout.add<TokenBias>(biases.size());
  const size_t words_at = layout.add<int32_t>(words.size());
  const size_t ends_at = layout.add<int32_t>(ends.size());
  const size_t stops_at = layout.add<int32_t>(p.stop_token_ids.size());
  const size_t allowed_at = layout.add<uint32_t>(allowed.size());
  const size_t count_at = layout.add<int32_t>(1);
  const size_t seen_at = layout.add<SeenToken>(seen_capacity);
  const size_t output_at = layout.add<int32_t>(words.empty() ? 0 : output.size() + room);
  host_.assign(layout.bytes(), std::byte{0});
  put(host_, bias_at, std::span<const TokenBias>(biases));
  put(host_, words_at, std::span<const int32_t>(words));
  put(host_, ends_at, std::span<const int32_t>(ends));
  put(host_, stops_at, std::span<const int32_t>(p.stop_token_ids));
  put(host_, allowed_at, std::span<const uint32_t>(allowed));
  put(host_, count_at, std::span<const int32_t>(&num_seen, 1));
  put(host_, seen_at, std::span<const SeenToken>(seen));
  if (!words.empty()) put(host_, output_at, output);
  state->memory = memory_->take(host_.size());
  backend_.upload(queue_, state->memory->data(), host_.data(), host_.size());

  const auto at = [&]<class T>(size_t offset, size_t count) -> T* {
    return count == 0 ? nullptr : reinterpret_cast<T*>(state->memory->data() + offset);
  };
  DrawRow& row = state->row;
  row.bias = at.operator()<TokenBias>(bias_at, biases.size());
  row.num_bias = static_cast<int32_t>(biases.size());
  row.bad_word_tokens = at.operator()<int32_t>(words_at, words.size());
  row.bad_word_ends = at.operator()<int32_t>(ends_at, ends.size());
  row.num_bad_words = static_cast<int32_t>(ends.size());
  row.stops = at.operator()<int32_t>(stops_at, p.stop_token_ids.size());
  row.num_stops = static_cast<int32_t>(p.stop_token_ids.size());
  row.allowed = at.operator()<uint32_t>(allowed_at, allowed.size());
  row.num_seen = at.operator()<int32_t>(count_at, 1);
  row.seen = at.operator()<SeenToken>(seen_at, seen_capacity);
  row.seen_capacity = static_cast<int32_t>(seen_capacity);
  row.output = at.operator()<int32_t>(output_at, words.size());  // null where there are no words
  row.repetition_penalty = p.repetition_penalty;
  row.presence_penalty = p.presence_penalty;
  row.frequency_penalty = p.frequency_penalty;
  state->output_length = s.state.output_length();
  s.on_device = std::move(state);
}

}  // namespace octavo
