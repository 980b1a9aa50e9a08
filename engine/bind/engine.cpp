#include "runtime/engine.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include "backend/cpu/cpu_backend.h"
#include "base/format.h"
#include "bind.h"
#include "kv_view.h"
#include "runtime/decision_report.h"
#include "runtime/group_blocks.h"
#include "sched/names.h"
#include "snapshot.h"
#include "weight_view.h"

namespace octavo {

namespace {

DType kv_dtype(const std::string& name) {
  if (name == "f16" || name == "float16" || name == "auto") return DType::kF16;
  if (name == "f32" || name == "float32") return DType::kF32;
  if (name == "bf16" || name == "bfloat16") return DType::kBF16;
  if (name == "int8") return DType::kI8;
  if (name == "fp8") return DType::kF8E4M3;
  throw Error(ErrorCode::kUnsupported, "kv_dtype",
              cat("kv_dtype must be auto, f16, bf16, f32, fp8 or int8, got '", name, "'"));
}

// (bytes of a block, most blocks or 0 for no bound) of every KV group, in order.
std::vector<std::tuple<size_t, int64_t>> kv_groups(const ModelConfig& config, const std::string& dtype, int block_size,
                                                   int max_num_seqs, int max_num_batched_tokens) {
  check_config(config);
  const auto backend = make_cpu_backend();
  std::vector<std::tuple<size_t, int64_t>> out;
  for (const KvGroup& group : make_kv_groups(config, kv_dtype(dtype))) {
    const int64_t most = most_blocks(group, block_size, max_num_seqs, max_num_batched_tokens);
    out.emplace_back(backend->kv_bytes(group, block_size), out.empty() ? 0 : most);
  }
  return out;
}

nb::dict stats_dict(const LoopStats& s) {
  nb::dict d;
  d["waiting"] = s.sched.waiting;
  d["running"] = s.sched.running;
  d["preemptions"] = s.sched.preemptions;
  d["prefix_queries"] = s.sched.prefix_queries;
  d["prefix_hits"] = s.sched.prefix_hits;
  d["tokens_computed"] = s.sched.tokens_computed;
  d["total_blocks"] = s.sched.total_blocks;
  d["free_blocks"] = s.sched.free_blocks;
  d["live_blocks"] = s.sched.live_blocks;
  d["cached_blocks"] = s.sched.cached_blocks;
  d["table_entries"] = s.sched.table_entries;
  d["queue_waits_for"] = name_of(s.sched.queue_waits_for);
  d["steps"] = s.steps;
  d["step_tokens"] = s.step_tokens;
  d["step_sizes"] = std::vector<int64_t>(s.step_sizes.begin(), s.step_sizes.end());
  d["prompt_tokens"] = s.prompt_tokens;
  d["generation_tokens"] = s.generation_tokens;
  d["forced_tokens"] = s.forced_tokens;
  d["failed_steps"] = s.failed_steps;
  d["shrunk_steps"] = s.shrunk_steps;
  d["non_finite_rows"] = s.non_finite_rows;
  d["device_lost"] = s.device_lost;
  d["last_step"] = s.last_step;
  d["host_ns"] = s.host_ns;
  d["execute_ns"] = s.execute_ns;
  d["submit_ns"] = s.submit_ns;
  return d;
}

// With the counters of the same moment and how long each waiting request has waited.
nb::dict engine_snapshot(Engine& engine) {
  const LoopSnapshot s = [&] {
    nb::gil_scoped_release release;
    return engine.snapshot();
  }();
  nb::dict d = snapshot_dict(s.sched);
  const nb::object waiting = d["waiting"];
  for (size_t i = 0; i < s.waited.size(); ++i) waiting[i]["waited"] = s.waited[i];
  d["time"] = s.time;
  d["stats"] = stats_dict(s.stats);
  return d;
}

nb::dict take_trace(Engine& engine) {
  const std::vector<Trace::Phase> phases = [&] {
    nb::gil_scoped_release release;
    return engine.take_trace();
  }();
  nb::dict d;
  for (const Trace::Phase& p : phases) d[p.name.c_str()] = nb::make_tuple(p.count, p.ns);
  return d;
}

nb::dict info_dict(const Engine& engine) {
  const ModelHost& host = engine.host();
  const BackendCaps caps = host.backend().caps();
  nb::dict d;
  d["backend"] = caps.name;
  d["isa"] = caps.isa;
  d["threads"] = host.threads();
  d["graphs"] = engine.options().graphs && host.backend().device_steps() != nullptr;
  d["weight_bytes"] = host.decoder().weights().bytes;
  d["file_bytes"] = host.file_bytes();
  d["kv_bytes_per_block"] = host.kv_bytes_per_block();
  d["kv_bytes"] = host.kv_bytes();
  d["kv_dtype"] = dtype_name(engine.options().kv_dtype);
  d["num_blocks"] = engine.options().num_blocks;
  d["block_size"] = engine.options().block_size;
  d["max_model_len"] = engine.options().max_model_len;
  d["max_num_seqs"] = engine.options().max_num_seqs;
  d["max_num_seqs_per_tenant"] = engine.options().max_num_seqs_per_tenant;
  d["max_num_batched_tokens"] = engine.options().max_num_batched_tokens;
  return d;
}

// The id of a request that the engine took; raises what it was refused for.
template <class Call>
RequestId accepted(Call&& call) {
  auto result = [&] {
    nb::gil_scoped_release release;
    return call();
  }();
  if (const auto* r = std::get_if<Refusal>(&result)) {
    nb::object exception = nb::module_::import_("octavo.errors")
                               .attr("refusal")(error_code_name(r->code), r->param, r->message, r->value, r->limit);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
    throw nb::python_error();
  }
  return std::get<RequestId>(result);
}

RequestId submit(Engine& engine, const std::vector<int32_t>& prompt, const SamplingParams& params,
                 std::shared_ptr<Channel> channel, uint64_t prefix_namespace, int32_t priority, uint32_t first_choice,
                 uint64_t tenant, int32_t shared_tokens) {
  SubmitRequest request;
  request.prompt = prompt;
  request.params = std::make_shared<const SamplingParams>(params);
  request.channel = std::move(channel);
  request.prefix_namespace = prefix_namespace;
  request.priority = priority;
  request.first_choice = first_choice;
  request.tenant = tenant;
  request.shared_tokens = shared_tokens;
  return accepted([&] { return engine.submit(std::move(request)); });
}

RequestId fork(Engine& engine, RequestId request, std::shared_ptr<Channel> channel,
               const std::optional<SamplingParams>& params, int32_t choice, std::optional<int32_t> position) {
  ForkRequest fork{request, choice, position, nullptr, std::move(channel)};
  if (params) fork.params = std::make_shared<const SamplingParams>(*params);
  return accepted([&] { return engine.fork(std::move(fork)); });
}

void inject_fault(Engine& engine, const std::string& kind, int32_t token, int32_t times, double seconds,
                  int32_t larger_than, const std::string& phase, int32_t after) {
  Fault fault{Fault::Kind::kThrow, token, times, larger_than, seconds, phase, after};
  if (kind == "out_of_memory") {
    fault.kind = Fault::Kind::kOutOfMemory;
  } else if (kind == "device_lost") {
    fault.kind = Fault::Kind::kDeviceLost;
  } else if (kind == "non_finite") {
    fault.kind = Fault::Kind::kNonFinite;
  } else if (kind == "grammar") {
    fault.kind = Fault::Kind::kGrammar;
  } else if (kind == "hold") {
    fault.kind = Fault::Kind::kHold;
  } else if (kind != "throw") {
    throw Error(ErrorCode::kInvalidArgument, "kind",
                cat("kind must be throw, out_of_memory, device_lost, non_finite, grammar or hold, got '", kind, "'"));
  }
  nb::gil_scoped_release release;
  engine.inject_fault(fault);
}

// The engine thread is joined without the interpreter's lock, also when the last reference simply goes.
void finalize(PyObject* self) {
  if (!nb::inst_ready(self)) return;
  nb::gil_scoped_release release;
  nb::inst_ptr<Engine>(self)->shutdown();
}

PyType_Slot kEngineSlots[] = {{Py_tp_finalize, reinterpret_cast<void*>(finalize)}, {0, nullptr}};

// Memory stands still only between pause() and resume().
const Engine& paused_engine(nb::handle self) {
  const auto& engine = nb::cast<const Engine&>(self);
  if (!engine.paused()) {
    throw Error(ErrorCode::kInvalidArgument, "paused",
                "weights and cache can be viewed only while the engine is paused");
  }
  return engine;
}

// In a forked child the engine's threads do not exist: joining them, or destroying what they wait on, would hang. They
// may wait for the interpreter's lock, which whoever lets the last reference go holds.
struct DeleteInOwnProcess {
  pid_t owner;
  void operator()(Engine* engine) const {
    if (getpid() != owner) return;
    nb::gil_scoped_release release;
    delete engine;
  }
};

}  // namespace

void bind_engine(nb::module_& m) {
  const auto release = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<DecisionReport>(m, "DecisionReport", "The last decisions of an engine, in a file.")
      .def("write", &DecisionReport::write, release, "Brings the file up to date.");
  nb::class_<Engine>(m, "Engine", nb::type_slots(kEngineSlots),
                     "The serving engine: one native thread that schedules, executes and publishes.")
      .def(nb::new_([](const ModelConfig& config, std::shared_ptr<WeightFiles> weights, int max_model_len,
                       int block_size, const std::string& dtype, int num_blocks, int max_num_seqs,
                       int max_num_batched_tokens, bool enable_prefix_caching, int threads, const std::string& isa,
                       bool trace, int max_num_seqs_per_tenant, const std::string& device, bool fast,
                       double memory_utilization, bool graphs, bool screen_head) {
             EngineOptions o;
             o.max_model_len = max_model_len;
             o.block_size = block_size;
             o.kv_dtype = kv_dtype(dtype);
             o.num_blocks = num_blocks;
             o.max_num_seqs = max_num_seqs;
             o.max_num_batched_tokens = max_num_batched_tokens;
             o.enable_prefix_caching = enable_prefix_caching;
             o.threads = threads;
             o.backend = {device, isa, fast};
             o.memory_utilization = memory_utilization;
             o.graphs = graphs;
             o.screen_head = screen_head;
             o.trace = trace;
             o.max_num_seqs_per_tenant = max_num_seqs_per_tenant;
             nb::gil_scoped_release r;
             return std::shared_ptr<Engine>(new Engine(config, std::move(weights), o), DeleteInOwnProcess{getpid()});
           }),
           nb::arg("config"), nb::arg("weights"), nb::kw_only(), nb::arg("max_model_len") = 0,
           nb::arg("block_size") = 16, nb::arg("kv_dtype") = "f16", nb::arg("num_blocks"),
           nb::arg("max_num_seqs") = 256, nb::arg("max_num_batched_tokens") = 512,
           nb::arg("enable_prefix_caching") = true, nb::arg("threads") = 0, nb::arg("isa") = "",
           nb::arg("trace") = false, nb::arg("max_num_seqs_per_tenant") = 0, nb::arg("device") = "cpu",
           nb::arg("fast") = false, nb::arg("memory_utilization") = 0.9, nb::arg("graphs") = true,
           nb::arg("screen_head") = true,
           "Packs the weights and makes the KV pool; on a GPU num_blocks 0 takes a share of the memory that is left. "
           "trace: note where the time of steps goes.")
      .def("start", &Engine::start, nb::arg("table"), release, "Starts the engine thread.")
      .def("open_channel", &Engine::open_channel)
      .def("close_channel", &Engine::close_channel, nb::arg("channel"), release, "Cancels the channel's requests.")
      .def("submit", &submit, nb::arg("prompt"), nb::arg("params"), nb::arg("channel"), nb::kw_only(),
           nb::arg("namespace") = 0, nb::arg("priority") = 0, nb::arg("first_choice") = 0, nb::arg("tenant") = 0,
           nb::arg("shared_tokens") = 0,
           "Submits token ids and returns the request id. Raises RefusedError for what can never be served. Sequence i "
           "draws with the random numbers of (seed, first_choice + i, position). Tenants share the engine's time "
           "fairly. Equal prompts share their cache within a namespace; the full blocks of the first shared_tokens "
           "tokens are shared by all.")
      .def("fork", &fork, nb::arg("request"), nb::arg("channel"), nb::kw_only(), nb::arg("params") = nb::none(),
           nb::arg("choice") = 0, nb::arg("position") = nb::none(),
           "A second continuation of a request that runs or ended lately, from its first `position` tokens (prompt "
           "included; None: all); returns its request id. What cannot be continued ends with an error delta.")
      .def(
          "new_token_limit", &Engine::new_token_limit, nb::arg("prompt"), nb::arg("sequences"),
          "The most tokens that each of so many sequences may have after a prompt of so many tokens: to the end of the "
          "window and, were the request alone in it, of the cache. Whoever asks for more gets these.")
      .def("cancel", &Engine::cancel, nb::arg("id"), release, "Aborts a request; unknown ids are ignored.")
      .def(
          "stats", [](const Engine& engine) { return stats_dict(engine.stats()); },
          nb::sig("def stats(self) -> dict[str, typing.Any]"), "Counters and gauges as of the last step.")
      .def("snapshot", &engine_snapshot, nb::sig("def snapshot(self) -> dict[str, typing.Any]"),
           "What the cache holds, block by block, and why each waiting request waits; waits for the step under way.")
      .def(
          "decisions", [](const Engine& engine) { return decisions_list(*engine.decisions()); },
          nb::sig("def decisions(self) -> list[dict[str, typing.Any]]"),
          "The scheduler's last events and decisions, oldest first; no token of a prompt is in them. It waits for no "
          "step.")
      .def(
          "scheduler_config", [](const Engine& engine) { return scheduler_config_dict(engine.scheduler_config()); },
          nb::sig("def scheduler_config(self) -> dict[str, typing.Any]"),
          "The arguments of a Scheduler in which decisions() can be replayed.")
      .def(
          "report_decisions",
          [](const Engine& engine, int fd, int64_t at, size_t size) {
            return std::make_unique<DecisionReport>(engine.decisions(), fd, at, size);
          },
          nb::arg("fd"), nb::arg("at"), nb::arg("size"),
          "Keeps the last decisions as lines of JSON in the bytes [at, at + size) of a file, which a fatal signal "
          "brings up to date. One at a time in a process; the file stays open while the report lives.")
      .def("info", &info_dict, nb::sig("def info(self) -> dict[str, typing.Any]"),
           "What was built: backend, sizes, limits.")
      .def("take_trace", &take_trace, nb::sig("def take_trace(self) -> dict[str, tuple[int, int]]"),
           "Where the time since the last call went: for each phase how often it ran and its nanoseconds. \"execute\" "
           "holds the phases of the model and the sampler. Only of an engine made with trace=True.")
      .def("audit", &Engine::audit, release, "Checks that every block is accounted for; raises when not.")
      .def("inject_fault", &inject_fault, nb::arg("kind"), nb::kw_only(), nb::arg("token") = -1, nb::arg("times") = 1,
           nb::arg("seconds") = 0.0, nb::arg("larger_than") = 0, nb::arg("phase") = "", nb::arg("after") = 0,
           "For tests: provokes a fault in later steps whose tokens include `token` (-1: any) and are more than "
           "`larger_than`; with trace=True also on entry of a phase that take_trace() names, `after` entries later.")
      .def("pause", &Engine::pause, release, "Returns when the step under way has ended; no step runs until resume().")
      .def("resume", &Engine::resume, release)
      .def_prop_ro("paused", &Engine::paused)
      .def(
          "weight_view",
          [](nb::handle self, const std::string& name) {
            return weight_view(paused_engine(self).host().decoder(), name, self);
          },
          nb::arg("name"), nb::sig("def weight_view(self, name: str) -> typing.Any"),
          "A weight where it lies in memory, read-only: a norm or bias [n], a dense matrix [panels, 2, 8, k]. While "
          "paused.")
      .def(
          "kv_view", [](nb::handle self, int layer) { return kv_view(paused_engine(self), layer, self); },
          nb::arg("layer"), nb::sig("def kv_view(self, layer: int) -> tuple[typing.Any, typing.Any]"),
          "(K, V) of one layer, read-only: K [blocks, kv_heads, head_dim, slots], V [blocks, kv_heads, slots, "
          "head_dim]. "
          "While paused.")
      .def("shutdown", &Engine::shutdown, release, "Aborts what is under way and joins the engine thread.");
  m.def(
      "kv_groups", &kv_groups, nb::arg("config"), nb::kw_only(), nb::arg("kv_dtype"), nb::arg("block_size"),
      nb::arg("max_num_seqs"), nb::arg("max_num_batched_tokens"),
      "(bytes of a block, most blocks or 0 for no bound) of every KV group: layers that keep positions equally long.");
}

}  // namespace octavo
