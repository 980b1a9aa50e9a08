#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "text/stop_strings.h"

namespace octavo {

// Pairs of marks between which stop strings are not looked for: around a thought, around a tool call. Outside, the mark
// that ends first opens a pause; inside, only that pause's own closing mark ends it.
class StopPauses {
 public:
  // Where a text stands. A copy goes on by itself.
  struct State {
    int32_t pause = -1;  // which pair's, -1: outside
    StopStrings::Node node = StopStrings::kRoot;
  };

  // An opening mark is not empty; with an empty closing one the pause lasts to the end of the text.
  explicit StopPauses(const std::vector<std::pair<std::string, std::string>>& marks);

  // Takes the next byte of the text. True where a pause has just begun or ended, and within one.
  bool advance(State& state, uint8_t byte) const;

 private:
  StopStrings openings_;
  std::vector<StopStrings> closings_;  // [pair]
};

}  // namespace octavo
