#include "runtime/finished_histories.h"

namespace octavo {

void FinishedHistories::keep(RequestId id, int32_t choice, FinishedHistory history) {
  const size_t tokens = history.tokens.size();
  order_.emplace_back(id, choice);
  try {
    histories_.insert_or_assign({id, choice}, std::move(history));
  } catch (...) {
    order_.pop_back();
    throw;
  }
  tokens_ += tokens;
  while (tokens_ > max_tokens_) {
    const auto oldest = histories_.find(order_.front());
    tokens_ -= oldest->second.tokens.size();
    histories_.erase(oldest);
    order_.pop_front();
  }
}

const FinishedHistory* FinishedHistories::find(RequestId id, int32_t choice) const {
  const auto it = histories_.find({id, choice});
  return it == histories_.end() ? nullptr : &it->second;
}

}  // namespace octavo
