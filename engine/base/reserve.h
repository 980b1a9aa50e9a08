#pragma once
#include <algorithm>
#include <cstddef>

namespace octavo {

// Room for `more` elements behind those there are: appending them then neither allocates nor throws. Unlike reserve()
// alone it keeps the cost of appending amortised.
template <class Container>
void reserve_more(Container& c, std::size_t more) {
  if (c.capacity() - c.size() < more) c.reserve(std::max(c.size() + more, 2 * c.capacity()));
}

}  // namespace octavo
