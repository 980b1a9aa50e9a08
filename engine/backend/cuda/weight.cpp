#include "backend/cuda/weight.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "backend/cuda/device.h"
#include "backend/cuda/weight_layout.h"
#include "base/errors.h"
#include "base/format.h"
#include "ops/check_source.h"

namespace octavo::cuda {
namespace {

constexpr int kTilesPerJob = 16;

// body(tile) for every tile, on all of the host's threads.
template <class Body>
void for_tiles(int tiles, const Body& body) {
  const int jobs = ceil_div(tiles, kTilesPerJob);
  const int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, jobs);
  std::exception_ptr failed;
  std::mutex mutex;
  const auto run = [&](int worker) {
    try {
      for (int job = worker; job < jobs; job += threads) {
        const int end = std::min((job + 1) * kTilesPerJob, tiles);
        for (int tile = job * kTilesPerJob; tile < end; ++tile) body(tile);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      failed = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> workers;
    for (int worker = 1; worker < threads; ++worker) workers.emplace_back(run, worker);
    run(0);
  }
  if (failed) std::rethrow_exception(failed);
}

void check_parts(const std::vector<MatrixSource>& parts) {
  if (parts.empty()) throw Error(ErrorCode::kInvalidArgument, "parts", "there is nothing to pack");
  for (const MatrixSource& part : parts) check_source(part, parts[0].k);
}

WeightFormat packed_format(const MatrixSource& part) { return part.pack_as.value_or(part.format); }

int total_rows(const std::vector<MatrixSource>& parts) {
  int rows = 0;
  for (const MatrixSource& part : parts) rows += part.n;
  return rows;
}

// Whether their rows make one run.
bool joins(const MatrixSource& a, const MatrixSource& b) {
  return a.format == b.format && packed_format(a) == packed_format(b) && a.input_order == b.input_order;
}

// The rows of parts, one after the other, in their files.
std::vector<const std::byte*> rows_of(const std::vector<MatrixSource>& parts, size_t first, size_t last) {
  std::vector<const std::byte*> rows;
  for (size_t i = first; i < last; ++i) {
    const MatrixSource& part = parts[i];
    for (int r = 0; r < part.n; ++r) {
      rows.push_back(part.data + static_cast<size_t>(part.row_order.empty() ? r : part.row_order[r]) * part.row_bytes);
    }
  }
  return rows;
}

const WeightView& single(const PackedWeight* weight, const char* what) {
  const auto& sections = static_cast<const GpuWeight*>(weight)->sections();
  if (sections.size() != 1) {
    throw Error(ErrorCode::kUnsupported, what,
                cat("an expert's ", what, " must have one format for all rows on a GPU, this one has ", sections.size(),
                    " parts"));
  }
  return sections[0].view;
}

bool alike(const WeightView& a, const WeightView& b) {
  return a.format == b.format && a.n == b.n && a.k == b.k && (a.input_order == nullptr) == (b.input_order == nullptr);
}

}  // namespace

GpuWeight::GpuWeight(Backend& backend, Queue& queue, const std::vector<MatrixSource>& parts)
    : PackedWeight(total_rows(parts), parts.empty() ? 0 : parts[0].k), backend_(backend), queue_(queue) {
  check_parts(parts);
  for (size_t first = 0, last; first < parts.size(); first = last) {
    for (last = first + 1; last < parts.size() && joins(parts[last - 1], parts[last]);) ++last;
    add_section(parts, first, last);
  }
}

void GpuWeight::add_section(const std::vector<MatrixSource>& parts, size_t first, size_t last) {
  const MatrixSource& like = parts[first];
  Section section;
  section.first_row = sections_.empty() ? 0 : sections_.back().first_row + sections_.back().view.n;
  section.view.format = packed_format(like);
  section.view.k = like.k;
  const std::vector<const std::byte*> rows = rows_of(parts, first, last);
  section.view.n = static_cast<int>(rows.size());
  const PackedSize size = packed_size(section.view.format, section.view.n, like.k);
  Buffer codes(size.codes), scales(size.scales);
  for_tiles(tiles_of(section.view.n), [&](int tile) {
    const int begin = tile * kTileRows, count = std::min(kTileRows, section.view.n - begin);
    repack_tile(like.format, section.view.format, rows.data() + begin, count, like.k, tile, codes.data(),
                scales.data());
  });
  for (size_t i = first; i < last; ++i) {
    if (parts[i].release) parts[i].release(parts[i].data, parts[i].row_bytes * static_cast<size_t>(parts[i].n));
  }
  section.view.codes = keep(std::move(codes));
  section.view.scales = keep(std::move(scales));
  if (!like.input_order.empty()) {
    Buffer order(like.input_order.size() * sizeof(int32_t));
    std::memcpy(order.data(), like.input_order.data(), order.size());
    section.view.input_order = reinterpret_cast<const int32_t*>(keep(std::move(order)));
  }
  sections_.push_back(section);
}

std::byte* GpuWeight::keep(Buffer host) {
  if (host.size() == 0) return nullptr;
  bytes_ += host.size();
  return memory_.emplace_back(backend_.adopt(queue_, std::move(host)))->data();
}

std::string GpuWeight::format() const {
  std::string out;
  for (const Section& section : sections_) {
    const char* name = weight_format_info(section.view.format).name;
    if (out.find(name) == std::string::npos) out += cat(out.empty() ? "" : "+", name);
  }
  return out;
}

// The kernel that looks up embeddings reads every format; for tests, so it may allocate.
void GpuWeight::dequantize_row(int row, float* out) const {
  const DeviceGuard guard(backend_.caps().ordinal);
  const auto id = backend_.allocate(sizeof(int32_t));
  const auto values = backend_.allocate(static_cast<size_t>(k_) * sizeof(float));
  const int32_t index = row;
  backend_.upload(queue_, id->data(), &index, sizeof index);
  backend_.embed(queue_, {this, id->as<int32_t>(), 1, 1.0f, values->as<float>()});
  backend_.download(queue_, out, values->data(), values->size());
  queue_.wait();
}

GpuExpertTable::GpuExpertTable(Backend& backend, Queue& queue, std::vector<ExpertMatrices> matrices)
    : ExpertTable(std::move(matrices)) {
  Buffer host(experts.size() * sizeof(DeviceExpert));
  for (size_t e = 0; e < experts.size(); ++e) {
    const DeviceExpert expert{single(experts[e].gate_up, "gate_up"), single(experts[e].down, "down"),
                              experts[e].gate_up_bias, experts[e].down_bias};
    if (e == 0) shape = expert;
    if (!alike(expert.gate_up, shape.gate_up) || !alike(expert.down, shape.down)) {
      throw Error(ErrorCode::kUnsupported, "experts", "all experts of a layer must have one format on a GPU");
    }
    host.as<DeviceExpert>()[e] = expert;
  }
  experts_on_device = backend.adopt(queue, std::move(host));
}

}  // namespace octavo::cuda
