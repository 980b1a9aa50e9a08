#include "backend_ops.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/string.h>

#include "backend/cpu/ceilings.h"
#include "backend/cpu/pool.h"
#include "backend/cuda_loader/backend_library.h"
#include "base/errors.h"
#include "base/format.h"
#include "bind.h"

namespace octavo {
namespace {

void make_ops(BackendOps* self, int threads, const std::string& isa, const std::string& device) {
  constexpr int kMaxThreads = 1024;
  if (threads < 0 || threads > kMaxThreads) {
    throw Error(ErrorCode::kInvalidArgument, "threads",
                cat("threads must be in [0, ", kMaxThreads, "], got ", threads));
  }
  nb::gil_scoped_release nogil;
  new (self) BackendOps(threads, {device, isa});
}

// Calls body(i) for every i, each from some thread of the pool.
void parallel_for(BackendOps& ops, int n, const std::function<void(int)>& body) {
  nb::gil_scoped_release nogil;
  ops.queue().parallel_for(n, [&](int i) {
    nb::gil_scoped_acquire gil;
    body(i);
  });
}

}  // namespace

void BackendOps::check_weight(const PackedWeight& weight) const {
  if (weight.backend() == (backend_->host_memory() ? nullptr : backend_.get())) return;
  throw Error(ErrorCode::kInvalidArgument, "packed",
              cat("packed belongs to ", weight.backend() ? "another context on a GPU" : "the CPU",
                  ", this call runs on \"", place().name(), "\": pack it with the context that multiplies"));
}

void bind_backend_ops(nb::module_& m) {
  nb::class_<BackendOps>(m, "BackendOps",
                         "A device's kernels and what runs them, on the CPU a pool of threads; one caller at a time.")
      .def("__init__", &make_ops, nb::arg("threads") = 0, nb::arg("isa") = "", nb::arg("device") = "cpu",
           "threads: 0 takes all allowed CPUs. isa: \"baseline\", \"avx2\", \"avx512vnni\" or \"avx512bf16\", by "
           "default the machine's best.")
      .def_prop_ro("threads", [](BackendOps& ops) { return ops.queue().threads(); })
      .def_prop_ro("isa", [](BackendOps& ops) { return ops.backend().caps().isa; })
      .def_prop_ro("device", [](BackendOps& ops) { return ops.backend().caps().name; })
      .def_prop_ro(
          "place", [](BackendOps& ops) { return ops.place().name(); }, "\"cpu\", or \"cuda:N\".")
      .def("enter", &BackendOps::enter, nb::arg("stream"),
           "Ops go into a stream of the caller's (a cudaStream_t as an integer) until leave().")
      .def("leave", &BackendOps::leave)
      .def("parallel_for", &parallel_for, nb::arg("n"), nb::arg("body"));
  m.def(
      "measure_ceilings",
      [](const std::string& isa, int threads, double seconds) {
        Ceilings c;
        {
          nb::gil_scoped_release release;
          c = measure_ceilings(choose_isa(isa), threads, seconds);
        }
        nb::dict d;
        d["fma_gflops"] = c.fma_gflops;
        d["bf16_gflops"] = c.bf16_gflops;
        d["int8_gops"] = c.int8_gops;
        d["int16_gops"] = c.int16_gops;
        d["read_gbytes"] = c.read_gbytes;
        return d;
      },
      nb::arg("isa") = "", nb::arg("threads") = 0, nb::arg("seconds") = 0.5,
      "What this machine can do at most with an instruction set, measured now.");
  m.def(
      "backends",
      [] {
        std::vector<BackendReport> reports;
        {
          nb::gil_scoped_release release;
          reports.push_back(report_backend("cuda"));
        }
        nb::dict out;
        for (const BackendReport& report : reports) {
          nb::list devices;
          for (const DeviceInfo& device : report.devices) {
            nb::dict d;
            d["name"] = device.name;
            d["isa"] = device.isa;
            d["memory_bytes"] = device.memory_bytes;
            d["free_bytes"] = device.free_bytes;
            devices.append(d);
          }
          nb::dict d;
          d["devices"] = devices;
          d["why_not"] = report.why_not;
          out[report.name.c_str()] = d;
        }
        return out;
      },
      nb::sig("def backends() -> dict[str, dict[str, typing.Any]]"),
      "Of every backend beside the CPU its devices, or why it cannot be used.");
  m.def("allowed_cpus", &allowed_cpus, "CPUs this process may use: affinity mask and cgroup quota.");
}

}  // namespace octavo
