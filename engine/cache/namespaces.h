#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

// One part of what a cached prefix belongs to. The kind is part of the identity: an adapter "x" is not a salt "x".
struct NamespaceTag {
  enum class Kind : uint8_t { kSalt = 1, kAdapter = 2, kMedia = 3 };
  Kind kind = Kind::kSalt;
  std::string_view value;
};

// Numbers for the namespaces of the prefix index. Exact: two lists of tags get one number only when kinds, values
// and order are equal. 0 is the namespace without tags. Owned by one thread.
class Namespaces {
 public:
  uint64_t intern(const std::vector<NamespaceTag>& tags);
  size_t size() const { return ids_.size(); }

 private:
  std::map<std::string, uint64_t> ids_;  // kind, length and bytes of every tag, one after the other
};

}  // namespace octavo
