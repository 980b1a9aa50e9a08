#include "text/stop_pauses.h"

namespace octavo {

namespace {

std::vector<std::string> openings_of(const std::vector<std::pair<std::string, std::string>>& marks) {
  std::vector<std::string> openings;
  for (const auto& [opening, closing] : marks) openings.push_back(opening);
  return openings;
}

}  // namespace

StopPauses::StopPauses(const std::vector<std::pair<std::string, std::string>>& marks) : openings_(openings_of(marks)) {
  for (const auto& [opening, closing] : marks) {
    closings_.emplace_back(closing.empty() ? std::vector<std::string>{} : std::vector<std::string>{closing});
  }
}

bool StopPauses::advance(State& state, uint8_t byte) const {
  const bool inside = state.pause >= 0;
  const StopStrings& marks = inside ? closings_[static_cast<size_t>(state.pause)] : openings_;
  state.node = marks.advance(state.node, byte);
  const int32_t found = marks.match(state.node);
  if (found >= 0) state = {.pause = inside ? -1 : found, .node = StopStrings::kRoot};
  return inside || found >= 0;
}

}  // namespace octavo
