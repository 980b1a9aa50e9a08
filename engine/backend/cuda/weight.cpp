#include "backend/cuda/weight.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/format.h"

namespace octavo::cuda {
namespace {

constexpr int kRowsPerJob = 16 * kRepackRows;

// body(first, count) for ranges of rows, on all of the host's threads.
template <class Body>
void for_rows(int rows, const Body& body) {
  const int jobs = (rows + kRowsPerJob - 1) / kRowsPerJob;
  const int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, std::max(jobs, 1));
  std::exception_ptr failed;
  std::mutex mutex;
  const auto run = [&](int worker) {
    try {
      for (int job = worker; job < jobs; job += threads) {
        const int first = job * kRowsPerJob;
        body(first, std::min(kRowsPerJob, rows - first));
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
  for (const MatrixSource& part : parts) {
    if (part.pack_as) {
      throw Error(ErrorCode::kUnsupported, part.name,
                  cat("tensor ", part.name, " cannot be quantized to ", weight_format_info(*part.pack_as).name,
                      " while it is loaded onto a GPU"));
    }
    if (part.k != parts[0].k) {
      throw Error(ErrorCode::kInvalidArgument, part.name,
                  cat("tensor ", part.name, " has ", part.k, " columns, ", parts[0].name, " has ", parts[0].k));
    }
  }
}

int total_rows(const std::vector<MatrixSource>& parts) {
  int rows = 0;
  for (const MatrixSource& part : parts) rows += part.n;
  return rows;
}

// Whose tiles begin where the tiles before them end.
bool joins(const MatrixSource& a, const MatrixSource& b) {
  return a.format == b.format && a.input_order == b.input_order && a.n % kRepackRows == 0;
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
  section.view.format = like.format;
  section.view.k = like.k;
  for (size_t i = first; i < last; ++i) section.view.n += parts[i].n;
  const PackedSize size = packed_size(like.format, section.view.n, like.k);
  Buffer codes(size.codes), scales(size.scales);
  size_t code_offset = 0, scale_offset = 0;
  for (size_t i = first; i < last; ++i) {
    const MatrixSource& part = parts[i];
    for_rows(part.n, [&](int row, int count) {
      repack(part, row, count, codes.data() + code_offset, scales.data() + scale_offset);
    });
    const PackedSize own = packed_size(part.format, part.n, part.k);
    code_offset += own.codes;
    scale_offset += own.scales;
    if (part.release) part.release(part.data, part.row_bytes * static_cast<size_t>(part.n));
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
