#include "cache/namespaces.h"

namespace octavo {

uint64_t Namespaces::intern(const std::vector<NamespaceTag>& tags) {
  if (tags.empty()) return 0;
  std::string key;
  for (const NamespaceTag& tag : tags) {
    key.push_back(static_cast<char>(tag.kind));
    const uint64_t length = tag.value.size();
    for (int shift = 0; shift < 64; shift += 8) key.push_back(static_cast<char>(length >> shift));
    key.append(tag.value);
  }
  return ids_.emplace(std::move(key), ids_.size() + 1).first->second;
}

}  // namespace octavo
