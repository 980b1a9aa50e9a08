#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "cache/block_pool.h"
#include "cache/prefix_key.h"

namespace octavo {

// How long a KV group needs a position: for ever (0) or while it is among the last `window`.
struct CacheRetention {
  int window = 0;
};

// What the cache knows of a prompt.
struct PrefixMatch {
  std::vector<NodeId> path;  // one node per full block, root side first
  NodeId tail = kNoNode;     // a node whose first tail_tokens tokens continue the path: to be copied
  int tail_tokens = 0;
  int tokens(int block_size) const { return static_cast<int>(path.size()) * block_size + tail_tokens; }
};

// Which committed blocks hold which tokens, exactly: a node is (namespace, parent node, token ids), a chained key
// finds candidates and the comparison decides. A node is full (block_size tokens) or a tail that still grows. It is
// logical, with an optional block per KV group, and keeps one candidate child per first token for prompts that part
// inside a block. Cached blocks leave least recently used first, children before parents. Every step is O(1).
class PrefixIndex {
 public:
  PrefixIndex(int block_size, std::vector<BlockPool*> pools, std::vector<CacheRetention> retention,
              PrefixKeyFn key_fn = prefix_key, PrefixKey root_key = {});

  // The longest prefix of `tokens` that every group can serve. `match` is reused storage.
  void find(uint64_t ns, std::span<const int32_t> tokens, PrefixMatch& match) const { find(ns, ns, 0, tokens, match); }
  // Walks namespace `shared_ns` for `shared_blocks` blocks, then `ns`: what an operator declares common to all.
  void find(uint64_t shared_ns, uint64_t ns, int shared_blocks, std::span<const int32_t> tokens,
            PrefixMatch& match) const;

  // The full node of `tokens` under `parent` (kNoNode: the root), made if there is none. `blocks` ([groups]; kNoBlock
  // where the window has passed) hold them and become the node's where it has none.
  NodeId insert(NodeId parent, uint64_t ns, std::span<const int32_t> tokens, std::span<const BlockId> blocks);
  // The same for a partly filled block, which the caller may go on filling. Best effort: a better candidate may have
  // its place.
  void insert_tail(NodeId parent, uint64_t ns, std::span<const int32_t> tokens, std::span<const BlockId> blocks);

  // Room for `more` nodes: inserts that make no more of them neither allocate nor throw.
  void reserve(int more);

  BlockId block(NodeId node, int group) const { return blocks_[node * groups_ + group]; }
  std::span<const int32_t> tokens(NodeId node) const {
    return {&tokens_[node * block_size_], size_t(nodes_[node].count)};
  }
  void prefetch(NodeId node) const {
    if (node == kNoNode) return;
    octavo::prefetch(nodes_[node]);
    octavo::prefetch(&tokens_[node * block_size_], block_size_ * sizeof(int32_t));
    octavo::prefetch(blocks_[node * groups_]);
  }
  int num_nodes() const { return num_nodes_; }

  // A live sequence stands here: the node stays even when it has no block left.
  void hold(NodeId node);
  void unhold(NodeId node);

  // Frees the oldest cached block of a group; false when there is none.
  bool evict(int group);
  void clear();  // forgets everything that nobody holds

  void audit() const;

 private:
  struct Node {
    uint64_t ns = 0;
    PrefixKey key;
    NodeId parent = kNoNode;
    NodeId next_full = kNoNode;   // in the bucket of full_
    NodeId next_first = kNoNode;  // in the bucket of first_
    int32_t count = 0;            // tokens; 0: unused
    int32_t children = 0;
    int32_t holds = 0;
    bool candidate = false;  // is in first_
  };

  bool full(NodeId n) const { return nodes_[n].count == block_size_; }
  bool serves(NodeId n, int group) const { return block(n, group) != kNoBlock; }
  bool serves_all(NodeId n) const;
  PrefixKey parent_key(NodeId parent) const { return parent == kNoNode ? root_key_ : nodes_[parent].key; }
  bool same(NodeId n, NodeId parent, uint64_t ns, std::span<const int32_t> tokens) const;
  NodeId find_full(const PrefixKey& key, NodeId parent, uint64_t ns, std::span<const int32_t> tokens) const;
  NodeId find_first(NodeId parent, uint64_t ns, int32_t token) const;
  size_t first_bucket(NodeId parent, uint64_t ns, int32_t token) const;

  NodeId own_tail(NodeId parent, uint64_t ns, std::span<const int32_t> tokens, std::span<const BlockId> blocks);
  void grow_tail(NodeId tail, std::span<const int32_t> tokens);
  NodeId create(NodeId parent, uint64_t ns, std::span<const int32_t> tokens);
  void give_blocks(NodeId n, std::span<const BlockId> blocks);
  void link_full(NodeId n);
  void unlink_full(NodeId n);
  void link_first(NodeId n);
  void unlink_first(NodeId n);
  void become_candidate(NodeId n);
  void remove(NodeId n);  // and the parents that stood only for it
  bool empty(NodeId n) const;
  void grow_buckets(size_t nodes);

  int block_size_;
  int groups_;
  bool has_full_group_ = false;
  std::vector<BlockPool*> pools_;
  std::vector<CacheRetention> retention_;
  PrefixKeyFn key_fn_;
  PrefixKey root_key_;

  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;  // [nodes, block_size]
  std::vector<BlockId> blocks_;  // [nodes, groups]
  NodeId unused_ = kNoNode;      // list through next_full
  int num_nodes_ = 0;
  std::vector<NodeId> full_;      // buckets of full nodes by key
  std::vector<NodeId> first_;     // buckets of candidate children by (parent, namespace, first token)
  mutable std::vector<int> run_;  // find(): blocks in a row that a window group holds
};

}  // namespace octavo
