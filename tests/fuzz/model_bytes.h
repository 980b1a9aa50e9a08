#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/weights.h"
#include "target.h"

namespace octavo::fuzz {

// A file under construction that remembers where its numbers lie.
class Writer {
 public:
  struct Field {
    size_t offset = 0;
    size_t size = 0;
  };

  void number(uint64_t value, size_t size);
  void text(std::string_view value);  // its length as eight bytes, then the text
  void bytes(std::string_view value);
  void zeros(size_t count);
  size_t size() const { return out_.size(); }

  // The bytes after `times` mutations: numbers set to what parsers stumble over, spans cut out, doubled or moved, bits
  // flipped, the end cut off.
  std::vector<uint8_t> mutated(Random& random, int times);

 private:
  void mutate_number(Random& random);
  void mutate_span(Random& random);

  std::vector<uint8_t> out_;
  std::vector<Field> fields_;
};

uint64_t below(Random& random, uint64_t limit);  // from 0 to limit - 1
bool chance(Random& random, int percent);

// Reads every byte of every tensor, and dense vectors as numbers.
void read_all(const WeightFiles& weights);

}  // namespace octavo::fuzz
