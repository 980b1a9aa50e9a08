#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <numeric>

#include "base/errors.h"
#include "base/format.h"
#include "bind.h"
#include "kv_dtype.h"
#include "model/decoder.h"
#include "model/step_inputs.h"
#include "runtime/open_backend.h"
#include "weight_view.h"

namespace octavo {

namespace {

// A decoder with a cache for one sequence and no scheduler: what tests compare with a reference.
class ModelRunner {
 public:
  ModelRunner(const ModelConfig& config, WeightFiles& files, const std::string& kv_dtype, int threads, int block_size,
              int max_tokens, int max_positions, const std::string& isa, const std::string& device)
      : backend_(open_backend({device, isa})),
        queue_(backend_->make_queue(threads)),
        decoder_(config, files, *backend_, *queue_, kv_dtype_from_name(kv_dtype), max_tokens, max_positions, false),
        block_size_(block_size),
        num_blocks_((max_positions + block_size - 1) / block_size),
        block_table_(num_blocks_),
        inputs_(*backend_, static_cast<int>(decoder_.kv_groups().size()),
                decoder_.cache_place(config.num_layers - 1).group, {max_tokens, 1, num_blocks_}) {
    for (const KvGroup& group : decoder_.kv_groups()) {
      pools_.push_back(backend_->make_kv_pool(group, block_size, num_blocks_));
      pool_views_.push_back(pools_.back().get());
    }
    // Physical blocks in another order than logical ones: a kernel that ignores the table is found out.
    for (int i = 0; i < num_blocks_; ++i) block_table_[i] = num_blocks_ - 1 - i;
  }

  // Logits [wanted, vocab] of the tokens at `wanted` positions. Tokens before `start` are in the cache from the call
  // before; the others are computed in steps of `chunk`.
  std::vector<float> logits(const std::vector<int32_t>& ids, int start, int chunk, const std::vector<int32_t>& wanted) {
    const int total = static_cast<int>(ids.size());
    if (total > num_blocks_ * block_size_ || total > decoder_.max_positions()) {
      throw Error(ErrorCode::kContextLength, "ids", cat(total, " tokens, room for ", decoder_.max_positions()));
    }
    for (const int32_t id : ids) {
      if (id < 0 || id >= decoder_.config().vocab) {
        throw Error(ErrorCode::kInvalidArgument, "ids",
                    cat("token id ", id, ", vocabulary of ", decoder_.config().vocab));
      }
    }
    std::vector<float> out(wanted.size() * decoder_.config().vocab);
    size_t done = 0;
    for (int first = start; first < total; first += chunk) {
      const int n = std::min(chunk, total - first);
      const size_t begin = done;
      while (done < wanted.size() && wanted[done] < first + n) ++done;
      std::vector<int32_t> rows(wanted.begin() + begin, wanted.begin() + done);
      for (int32_t& row : rows) row -= first;
      step(ids.data() + first, first, n, rows, out.data() + begin * decoder_.config().vocab);
    }
    return out;
  }

  // The packed weight's values, [rows, k], or a vector's.
  std::vector<float> dequantized(const WeightPlace& place) {
    const int columns = place.matrix ? place.matrix->k() : 1;
    std::vector<float> values(static_cast<size_t>(place.rows) * columns);
    if (place.matrix) {
      for (int row = 0; row < place.rows; ++row)
        place.matrix->dequantize_row(place.first_row + row, values.data() + static_cast<size_t>(row) * columns);
    } else {
      backend_->download(*queue_, values.data(), place.vector, values.size() * sizeof(float));
      queue_->wait();
    }
    return values;
  }

  const Decoder& decoder() const { return decoder_; }
  BackendCaps caps() const { return backend_->caps(); }

 private:
  void step(const int32_t* ids, int first, int n, const std::vector<int32_t>& wanted, float* logits) {
    std::vector<int32_t> positions(n), slots(n);
    std::iota(positions.begin(), positions.end(), first);
    for (int i = 0; i < n; ++i) {
      slots[i] = block_table_[(first + i) / block_size_] * block_size_ + (first + i) % block_size_;
    }
    std::vector<std::vector<int32_t>> tables;
    std::vector<AttentionRow> rows;
    for (const KvGroup& group : decoder_.kv_groups()) {
      // What has left the window is not there.
      std::vector<int32_t>& table = tables.emplace_back(block_table_);
      const int seen = group.retain == Retain::kWindow ? std::max(0, first - group.window + 1) / block_size_ : 0;
      std::fill_n(table.begin(), seen, -1);
      rows.push_back({0, n, first, table.data()});
    }
    std::vector<HostBatch::Group> groups;
    for (size_t g = 0; g < rows.size(); ++g) groups.push_back({slots, {&rows[g], 1}, tables[g], {}});
    HostBatch host;
    host.tokens = {ids, static_cast<size_t>(n)};
    host.positions = positions;
    host.groups = groups;
    host.logit_tokens = wanted;
    ForwardBatch& batch = inputs_.stage(*queue_, host);
    const size_t bytes = wanted.size() * decoder_.config().vocab * sizeof(float);
    const auto on_device = backend_->allocate(bytes);
    batch.logits = on_device->as<float>();
    decoder_.forward(*queue_, batch, pool_views_);
    backend_->download(*queue_, logits, on_device->data(), bytes);
    queue_->wait();
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Queue> queue_;
  Decoder decoder_;
  int block_size_;
  int num_blocks_;
  std::vector<int32_t> block_table_;
  StepInputs inputs_;
  std::vector<std::unique_ptr<KvPool>> pools_;
  std::vector<KvPool*> pool_views_;
};

using FloatMatrix = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

FloatMatrix to_matrix(std::vector<float> values, size_t rows, size_t columns) {
  auto* held = new std::vector<float>(std::move(values));
  nb::capsule owner(held, [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return FloatMatrix(held->data(), {rows, columns}, owner);
}

FloatMatrix run_logits(ModelRunner& runner, const std::vector<int32_t>& ids, int start, int chunk,
                       std::optional<std::vector<int32_t>> positions) {
  const int total = static_cast<int>(ids.size());
  if (start < 0 || start > total || chunk < 0) {
    throw Error(ErrorCode::kInvalidArgument, "start",
                cat("start ", start, " and chunk ", chunk, " for ", total, " tokens"));
  }
  std::vector<int32_t> wanted(total - start);
  std::iota(wanted.begin(), wanted.end(), start);
  if (positions) wanted = std::move(*positions);
  if (chunk == 0) chunk = runner.decoder().max_tokens();
  std::vector<float> logits;
  {
    nb::gil_scoped_release release;
    logits = runner.logits(ids, start, chunk, wanted);
  }
  return to_matrix(std::move(logits), wanted.size(), runner.decoder().config().vocab);
}

FloatMatrix dequantized(ModelRunner& runner, const std::string& name) {
  const WeightPlace& place = runner.decoder().weights().find(name);
  return to_matrix(runner.dequantized(place), place.rows, place.matrix ? place.matrix->k() : 1);
}

}  // namespace

void bind_model_runner(nb::module_& m) {
  nb::class_<ModelRunner>(m, "ModelRunner", "A decoder with a cache for one sequence, for tests and measurements.")
      .def(nb::init<const ModelConfig&, WeightFiles&, const std::string&, int, int, int, int, const std::string&,
                    const std::string&>(),
           nb::arg("config"), nb::arg("weights"), nb::kw_only(), nb::arg("kv_dtype") = "f32", nb::arg("threads") = 1,
           nb::arg("block_size") = 16, nb::arg("max_tokens") = 512, nb::arg("max_positions") = 2048,
           nb::arg("isa") = "", nb::arg("device") = "cpu", nb::call_guard<nb::gil_scoped_release>())
      .def("logits", &run_logits, nb::arg("ids"), nb::kw_only(), nb::arg("start") = 0, nb::arg("chunk") = 0,
           nb::arg("positions") = nb::none(),
           "Logits [positions, vocab], by default of every token from `start` on, computed in steps of `chunk` tokens. "
           "Tokens before `start` are those of the call before.")
      .def("dequantized", &dequantized, nb::arg("name"), "The packed weight's values, [rows, k] (a vector: [n, 1]).")
      .def(
          "weight_view",
          [](nb::object self, const std::string& name) {
            return weight_view(nb::cast<ModelRunner&>(self).decoder(), name, self);
          },
          nb::arg("name"), "A weight where it lies in memory, read-only; see Engine.weight_view.")
      .def_prop_ro("packed_bytes", [](const ModelRunner& r) { return r.decoder().weights().bytes; })
      .def_prop_ro("isa", [](const ModelRunner& r) { return r.caps().isa; });
}

}  // namespace octavo
