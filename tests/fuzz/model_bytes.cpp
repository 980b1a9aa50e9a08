#include "model_bytes.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/errors.h"
#include "model/dense.h"

namespace octavo::fuzz {

namespace {

constexpr int64_t kMostElements = 1 << 16;  // of a tensor that is read as numbers

uint64_t troublesome(Random& random, uint64_t current, size_t file_size) {
  const uint64_t edges[] = {0,
                            1,
                            2,
                            3,
                            7,
                            31,
                            32,
                            255,
                            256,
                            65535,
                            65536,
                            INT32_MAX,
                            uint64_t{INT32_MAX} + 1,
                            UINT32_MAX,
                            uint64_t{UINT32_MAX} + 1,
                            INT64_MAX,
                            uint64_t{INT64_MAX} + 1,
                            UINT64_MAX,
                            UINT64_MAX - 31,
                            file_size,
                            file_size + 1,
                            current + 1,
                            current - 1,
                            current * 2,
                            current ^ (uint64_t{1} << below(random, 64))};
  return chance(random, 10) ? random() : edges[below(random, std::size(edges))];
}

}  // namespace

uint64_t below(Random& random, uint64_t limit) { return random() % limit; }

bool chance(Random& random, int percent) { return below(random, 100) < static_cast<uint64_t>(percent); }

void Writer::number(uint64_t value, size_t size) {
  fields_.push_back({out_.size(), size});
  for (size_t i = 0; i < size; ++i) out_.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

void Writer::text(std::string_view value) {
  number(value.size(), 8);
  bytes(value);
}

void Writer::bytes(std::string_view value) { out_.insert(out_.end(), value.begin(), value.end()); }

void Writer::zeros(size_t count) { out_.resize(out_.size() + count); }

void Writer::mutate_number(Random& random) {
  if (fields_.empty()) return;
  const Field field = fields_[below(random, fields_.size())];
  if (field.offset + field.size > out_.size()) return;  // an earlier mutation cut it off
  uint64_t value = 0;
  std::memcpy(&value, out_.data() + field.offset, field.size);
  value = troublesome(random, value, out_.size());
  std::memcpy(out_.data() + field.offset, &value, field.size);
}

void Writer::mutate_span(Random& random) {
  if (out_.empty()) return;
  const auto at = [&](size_t i) { return out_.begin() + static_cast<ptrdiff_t>(i); };
  const size_t begin = below(random, out_.size());
  const size_t size = 1 + below(random, std::min<size_t>(out_.size() - begin, 64));
  const std::vector<uint8_t> span(at(begin), at(begin + size));
  switch (below(random, 5)) {
    case 0:
      out_.erase(at(begin), at(begin + size));
      break;
    case 1:
      out_.insert(at(begin), span.begin(), span.end());
      break;
    case 2: {
      const size_t to = below(random, out_.size());
      std::copy_n(span.begin(), std::min(size, out_.size() - to), at(to));
      break;
    }
    case 3:
      out_[begin] ^= static_cast<uint8_t>(1 << below(random, 8));
      break;
    default:
      out_.resize(begin);
  }
}

std::vector<uint8_t> Writer::mutated(Random& random, int times) {
  for (int i = 0; i < times; ++i) {
    if (chance(random, 65)) {
      mutate_number(random);
    } else {
      mutate_span(random);
    }
  }
  return std::move(out_);
}

void read_all(const WeightFiles& weights) {
  weights.file_bytes();
  for (const std::string& name : weights.names()) {
    if (!weights.has(name)) throw std::logic_error("a listed tensor is not there");
    const WeightInfo info = weights.info(name);
    int64_t rows = 1, columns = 1;
    for (size_t d = 0; d < info.shape.size(); ++d) (d + 1 == info.shape.size() ? columns : rows) *= info.shape[d];
    if (rows * columns == 0 || rows > INT32_MAX || columns > INT32_MAX) continue;
    try {
      const MatrixSource source = weights.matrix(name, static_cast<int>(rows), static_cast<int>(columns));
      uint8_t sum = 0;
      for (size_t i = 0; i < static_cast<size_t>(rows) * source.row_bytes; ++i)
        sum ^= static_cast<uint8_t>(source.data[i]);
      volatile uint8_t kept = sum;
      static_cast<void>(kept);
      const bool dense = source.format <= WeightFormat::kBF16;
      if (dense && rows * columns <= kMostElements) to_f32(source);
    } catch (const Error&) {
      // A tensor of a shape or format that cannot be a matrix is refused on its own.
    }
  }
}

}  // namespace octavo::fuzz
