#include "cache/paged_cache.h"

#include "base/errors.h"
#include "base/format.h"

namespace octavo {
namespace {

std::vector<std::unique_ptr<BlockPool>> make_pools(const std::vector<PagedCacheGroup>& groups) {
  std::vector<std::unique_ptr<BlockPool>> pools;
  for (const PagedCacheGroup& g : groups) pools.push_back(std::make_unique<BlockPool>(g.num_blocks));
  return pools;
}

std::vector<BlockPool*> pointers(const std::vector<std::unique_ptr<BlockPool>>& pools) {
  std::vector<BlockPool*> out;
  for (const auto& p : pools) out.push_back(p.get());
  return out;
}

std::vector<CacheRetention> retention(const std::vector<PagedCacheGroup>& groups) {
  std::vector<CacheRetention> out;
  for (const PagedCacheGroup& g : groups) out.push_back({g.window});
  return out;
}

}  // namespace

PagedCache::PagedCache(int block_size, const std::vector<PagedCacheGroup>& groups, PrefixKeyFn key_fn,
                       PrefixKey root_key)
    : block_size_(block_size),
      pools_(make_pools(groups)),
      index_(block_size, pointers(pools_), retention(groups), key_fn, root_key) {
  for (const PagedCacheGroup& g : groups) windows_.push_back(g.window);
}

BlockRef PagedCache::allocate(int group) {
  BlockPool& pool = *pools_[group];
  if (pool.num_free() == 0 && !index_.evict(group)) return {};
  return pool.allocate();
}

void PagedCache::audit(std::span<const Handles> handles) const {
  const auto fail = [](const std::string& what) { throw Error(ErrorCode::kInternal, "audit", what); };
  for (int g = 0; g < num_groups(); ++g) {
    pool(g).audit();
    for (BlockId b = 0; b < pool(g).size(); ++b) {
      if (pool(g).refs(b) != handles[g].refs[b] || pool(g).pins(b) != handles[g].pins[b]) {
        fail(cat("block ", b, " of group ", g, " counts ", pool(g).refs(b), " shares and ", pool(g).pins(b), " pins, ",
                 handles[g].refs[b], " and ", handles[g].pins[b], " are known"));
      }
    }
  }
  index_.audit();
}

}  // namespace octavo
