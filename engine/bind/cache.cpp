#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "base/errors.h"
#include "base/format.h"
#include "bind.h"
#include "cache/namespaces.h"
#include "cache/paged_cache.h"

namespace octavo {

namespace {

PrefixKey one_key(const PrefixKey&, uint64_t, std::span<const int32_t>) { return {1, 1}; }

std::unique_ptr<PagedCache> make_cache(const std::vector<std::tuple<int, int>>& groups, int block_size,
                                       bool colliding_keys) {
  std::vector<PagedCacheGroup> made;
  for (const auto& [blocks, window] : groups) made.push_back({blocks, window});
  return std::make_unique<PagedCache>(block_size, made, colliding_keys ? one_key : prefix_key);
}

void check_block(const PagedCache& cache, int group, BlockId id) {
  if (group < 0 || group >= cache.num_groups()) {
    throw Error(ErrorCode::kInvalidArgument, "group", cat("group ", group, " is not in [0, ", cache.num_groups(), ")"));
  }
  if (id < 0 || id >= cache.pool(group).size()) {
    throw Error(ErrorCode::kInvalidArgument, "block",
                cat("block ", id, " is not in [0, ", cache.pool(group).size(), ")"));
  }
}

// A table with the cache that it allocates from.
struct Table {
  PagedCache* cache;
  int group;
  BlockTable table;
};

NodeId insert(PagedCache& cache, NodeId parent, uint64_t ns, const std::vector<int32_t>& tokens,
              const std::vector<BlockId>& blocks) {
  return cache.index().insert(parent, ns, tokens, blocks);
}

nb::tuple find(const PagedCache& cache, uint64_t ns, const std::vector<int32_t>& tokens, uint64_t shared_ns,
               int shared_blocks) {
  PrefixMatch match;
  cache.index().find(shared_ns, ns, shared_blocks, tokens, match);
  return nb::make_tuple(match.path, match.tail, match.tail_tokens);
}

void audit(const PagedCache& cache, const std::vector<Table*>& tables) {
  std::vector<PagedCache::Handles> handles(cache.num_groups());
  for (int g = 0; g < cache.num_groups(); ++g) {
    handles[g].refs.assign(cache.pool(g).size(), 0);
    handles[g].pins.assign(cache.pool(g).size(), 0);
  }
  for (const Table* t : tables) {
    for (int i = t->table.first(); i < t->table.size(); ++i) ++handles[t->group].refs[t->table[i]];
  }
  cache.audit(handles);
}

}  // namespace

void bind_cache(nb::module_& m) {
  nb::class_<PagedCache>(m, "PagedCache", "Block pools and the prefix index, integers only; for tests and studies.")
      .def(
          nb::new_(&make_cache), nb::arg("groups"), nb::arg("block_size") = 16, nb::kw_only(),
          nb::arg("colliding_keys") = false,
          "groups: (num_blocks, window). colliding_keys gives every prefix one key, to show that keys are no identity.")
      .def(
          "free_blocks", [](const PagedCache& c, int g) { return c.pool(g).num_free(); }, nb::arg("group") = 0)
      .def(
          "live_blocks", [](const PagedCache& c, int g) { return c.pool(g).num_live(); }, nb::arg("group") = 0)
      .def(
          "cached_blocks", [](const PagedCache& c, int g) { return c.pool(g).cached_order(); }, nb::arg("group") = 0,
          "Ids of the cached blocks, the next to be evicted first.")
      .def(
          "refs",
          [](const PagedCache& c, BlockId id, int g) {
            check_block(c, g, id);
            return c.pool(g).refs(id);
          },
          nb::arg("block"), nb::arg("group") = 0)
      .def("insert", &insert, nb::arg("parent"), nb::arg("namespace"), nb::arg("tokens"), nb::arg("blocks"),
           "Indexes a full block under a node (-1: the root) and returns its node.")
      .def(
          "insert_tail",
          [](PagedCache& c, NodeId parent, uint64_t ns, const std::vector<int32_t>& tokens,
             const std::vector<BlockId>& blocks) { c.index().insert_tail(parent, ns, tokens, blocks); },
          nb::arg("parent"), nb::arg("namespace"), nb::arg("tokens"), nb::arg("blocks"))
      .def("find", &find, nb::arg("namespace"), nb::arg("tokens"), nb::arg("shared_namespace") = 0,
           nb::arg("shared_blocks") = 0, "(nodes of full blocks, tail node, tokens of it to copy).")
      .def(
          "block", [](const PagedCache& c, NodeId n, int g) { return c.index().block(n, g); }, nb::arg("node"),
          nb::arg("group") = 0)
      .def("nodes", [](const PagedCache& c) { return c.index().num_nodes(); })
      .def(
          "evict", [](PagedCache& c, int g) { return c.index().evict(g); }, nb::arg("group") = 0)
      .def("clear", [](PagedCache& c) { c.index().clear(); })
      .def("audit", &audit, nb::arg("tables"), "Raises unless pools, index and the tables' shares agree.");

  nb::class_<Table>(m, "BlockTable", "Where one sequence's positions lie in one KV group.")
      .def(nb::new_([](PagedCache& c, int g) { return new Table{&c, g, BlockTable(c.pool(g))}; }), nb::arg("cache"),
           nb::arg("group") = 0, nb::keep_alive<1, 2>())
      .def(
          "append",
          [](Table& t) {
            BlockRef block = t.cache->allocate(t.group);
            if (!block)
              throw Error(ErrorCode::kCapacity, "blocks", cat("all ", t.table.pool().size(), " blocks are live"));
            t.table.append(std::move(block));
            return t.table[t.table.size() - 1];
          },
          "Takes a new block; returns its id.")
      .def(
          "share",
          [](Table& t, BlockId id) {
            check_block(*t.cache, t.group, id);
            t.table.append(t.table.pool().share(id));
          },
          nb::arg("block"), "Appends a share of a live or cached block.")
      .def(
          "fork", [](const Table& t) { return new Table{t.cache, t.group, t.table.fork()}; }, nb::keep_alive<0, 1>())
      .def(
          "make_writable",
          [](Table& t, int i, int slots) -> nb::object {
            if (i < t.table.first() || i >= t.table.size()) {
              throw Error(ErrorCode::kInvalidArgument, "index",
                          cat("entry ", i, " is not in the table of ", t.table.size()));
            }
            if (!t.table.shared(i)) return nb::none();
            BlockRef fresh = t.cache->allocate(t.group);
            if (!fresh)
              throw Error(ErrorCode::kCapacity, "blocks", cat("all ", t.table.pool().size(), " blocks are live"));
            const CopyOnWrite copy = t.table.copy_on_write(i, slots, std::move(fresh));
            return nb::make_tuple(copy.src, copy.dst, copy.slots);
          },
          nb::arg("index"), nb::arg("slots"), "None, or the (source, target, slots) that must be copied first.")
      .def("drop_front", [](Table& t) { t.table.drop_front(); })
      .def("clear", [](Table& t) { t.table.clear(); })
      .def("ids", [](const Table& t) { return std::vector<BlockId>(t.table.data(), t.table.data() + t.table.size()); });

  nb::class_<Namespaces>(m, "Namespaces", "Exact numbers for lists of tags that separate cached prefixes.")
      .def(nb::init<>())
      .def(
          "intern",
          [](Namespaces& self, const std::vector<std::pair<std::string, std::string>>& tags) {
            std::vector<NamespaceTag> made;
            for (const auto& [kind, value] : tags) {
              using Kind = NamespaceTag::Kind;
              if (kind != "salt" && kind != "adapter" && kind != "media") {
                throw Error(ErrorCode::kInvalidArgument, "kind",
                            cat("kind must be salt, adapter or media, got ", kind));
              }
              made.push_back({kind == "salt" ? Kind::kSalt : kind == "adapter" ? Kind::kAdapter : Kind::kMedia, value});
            }
            return self.intern(made);
          },
          nb::arg("tags"), "tags: (kind, value) with kind salt, adapter or media; no tags: 0.");
}

}  // namespace octavo
