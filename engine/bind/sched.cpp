#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <variant>

#include "bind.h"
#include "sched/names.h"
#include "sched/scheduler.h"
#include "snapshot.h"

namespace octavo {

namespace {

using OutcomeTuple = std::tuple<SeqId, SeqId, std::variant<int32_t, std::vector<int32_t>>, bool>;
using CacheGroupTuple = std::tuple<int, int>;

SchedulerConfig make_config(const std::vector<CacheGroupTuple>& groups, int block_size, int max_tokens_per_step,
                            int max_seqs, int max_model_len, bool prefix_caching, double watermark, int depth,
                            int max_seqs_per_tenant, int ageing_steps, int shared_prompt_tokens) {
  SchedulerConfig config;
  config.groups.clear();
  for (const auto& [blocks, window] : groups) {
    config.groups.push_back({blocks, window > 0 ? RetainBlocks::kWindow : RetainBlocks::kAll, window});
  }
  config.block_size = block_size;
  config.max_tokens_per_step = max_tokens_per_step;
  config.max_seqs = max_seqs;
  config.max_model_len = max_model_len;
  config.prefix_caching = prefix_caching;
  config.watermark = watermark;
  config.depth = depth;
  config.max_seqs_per_tenant = max_seqs_per_tenant;
  config.ageing_steps = ageing_steps;
  config.shared_prompt_tokens = shared_prompt_tokens;
  return config;
}

RequestSpec make_spec(RequestId id, std::vector<SeqId> seqs, std::vector<int32_t> prompt, uint64_t ns, int32_t priority,
                      int32_t max_new_tokens, bool prompt_logits, SeqId source = 0, uint64_t tenant = 0,
                      int32_t shared_tokens = 0, bool lockstep = false) {
  return {id,       std::move(seqs), std::move(prompt), ns,       shared_tokens, tenant,
          priority, max_new_tokens,  prompt_logits,     lockstep, source};
}

nb::tuple refusal_to_python(const Refusal& r) {
  return nb::make_tuple(error_code_name(r.code), r.param, r.message, r.value, r.limit);
}

const char* logits_name(LogitsWanted wanted) {
  switch (wanted) {
    case LogitsWanted::kNone:
      return "none";
    case LogitsWanted::kLast:
      return "last";
    case LogitsWanted::kRange:
      return "range";
  }
  return "?";
}

nb::dict row_to_python(const StepPlan& plan, size_t index) {
  const PlanRow& row = plan.rows[index];
  nb::dict out;
  out["seq"] = row.seq;
  out["first_pos"] = row.first_pos;
  out["n_tokens"] = row.n_tokens;
  out["from_step"] = row.from_step;
  out["from_row"] = row.from_row;
  out["logits"] = logits_name(row.logits);
  out["logits_first"] = row.logits_first;
  const auto begin = plan.tokens.begin() + row.token_offset;
  out["tokens"] = std::vector<int32_t>(begin, begin + row.n_tokens);
  nb::list slots, tables;
  for (const StepPlan::Group& g : plan.groups) {
    const auto at = g.slots.begin() + row.token_offset;
    slots.append(nb::cast(std::vector<int32_t>(at, at + row.n_tokens)));
    tables.append(nb::cast(std::vector<int32_t>(g.tables.begin() + g.table_offsets[index],
                                                g.tables.begin() + g.table_offsets[index + 1])));
  }
  out["slots"] = slots;
  out["tables"] = tables;
  return out;
}

nb::object plan_to_python(const StepPlan* plan) {
  if (plan == nullptr) return nb::none();
  nb::dict out;
  out["step"] = plan->step;
  nb::list copies, rows, samples, prefix_groups;
  for (const BlockCopy& c : plan->copies) copies.append(nb::make_tuple(c.group, c.src, c.dst, c.slots));
  for (size_t i = 0; i < plan->rows.size(); ++i) rows.append(row_to_python(*plan, i));
  for (const SampleRow& s : plan->samples) samples.append(nb::make_tuple(s.row, s.token, s.state, s.position));
  for (const PrefixGroup& g : plan->prefix_groups) prefix_groups.append(nb::make_tuple(nb::cast(g.rows), g.partitions));
  out["copies"] = copies;
  out["rows"] = rows;
  out["samples"] = samples;
  out["prefix_groups"] = prefix_groups;
  return out;
}

void commit(Scheduler& scheduler, StepId step, const std::vector<OutcomeTuple>& outcomes,
            const std::vector<SeqId>& faults) {
  StepOutcome outcome;
  for (const auto& [parent, child, given, finished] : outcomes) {
    const auto* list = std::get_if<std::vector<int32_t>>(&given);
    const std::vector<int32_t> tokens = list ? *list : std::vector<int32_t>{std::get<int32_t>(given)};
    outcome.outcomes.push_back({parent, child, tokens.at(0), finished, static_cast<int32_t>(outcome.forced.size()),
                                static_cast<int32_t>(tokens.size()) - 1});
    outcome.forced.insert(outcome.forced.end(), tokens.begin() + 1, tokens.end());
  }
  for (const SeqId seq : faults) outcome.faults.push_back({seq});
  scheduler.commit(step, outcome);
}

nb::dict stats_to_python(const SchedulerStats& s) {
  nb::dict out;
  out["waiting"] = s.waiting;
  out["running"] = s.running;
  out["preemptions"] = s.preemptions;
  out["prefix_queries"] = s.prefix_queries;
  out["prefix_hits"] = s.prefix_hits;
  out["tokens_computed"] = s.tokens_computed;
  out["total_blocks"] = s.total_blocks;
  out["free_blocks"] = s.free_blocks;
  out["live_blocks"] = s.live_blocks;
  out["cached_blocks"] = s.cached_blocks;
  out["table_entries"] = s.table_entries;
  out["queue_waits_for"] = name_of(s.queue_waits_for);
  return out;
}

// Plans and commits `steps` steps in which every sequence draws token `step`; returns nanoseconds per step, the
// median of plan and commit together, so that what Python adds is not measured.
double time_steps(Scheduler& scheduler, int steps) {
  std::vector<double> times;
  StepOutcome outcome;
  for (int i = 0; i < steps; ++i) {
    auto begin = std::chrono::steady_clock::now();
    const StepPlan* plan = scheduler.plan();
    auto spent = std::chrono::steady_clock::now() - begin;
    if (plan == nullptr) break;
    outcome.outcomes.clear();
    for (const SampleRow& s : plan->samples) outcome.outcomes.push_back({plan->rows[s.row].seq, s.state, i, false});
    begin = std::chrono::steady_clock::now();
    scheduler.commit(plan->step, outcome);
    spent += std::chrono::steady_clock::now() - begin;
    times.push_back(std::chrono::duration<double, std::nano>(spent).count());
  }
  if (times.empty()) return 0.0;
  std::ranges::nth_element(times, times.begin() + times.size() / 2);
  return times[times.size() / 2];
}

}  // namespace

void bind_sched(nb::module_& m) {
  nb::class_<Scheduler>(m, "Scheduler",
                        "Continuous batching over a paged cache, integers only: what the engine thread drives, here "
                        "for tests and studies. Not thread-safe.")
      .def(
          "__init__",
          [](Scheduler* self, const std::vector<CacheGroupTuple>& groups, int block_size, int max_tokens_per_step,
             int max_seqs, int max_model_len, bool prefix_caching, double watermark, int depth, int max_seqs_per_tenant,
             int ageing_steps, int shared_prompt_tokens) {
            new (self)
                Scheduler(make_config(groups, block_size, max_tokens_per_step, max_seqs, max_model_len, prefix_caching,
                                      watermark, depth, max_seqs_per_tenant, ageing_steps, shared_prompt_tokens));
          },
          nb::kw_only(), nb::arg("groups"), nb::arg("block_size") = 16, nb::arg("max_tokens_per_step") = 512,
          nb::arg("max_seqs") = 256, nb::arg("max_model_len"), nb::arg("prefix_caching") = true,
          nb::arg("watermark") = 0.01, nb::arg("depth") = 1, nb::arg("max_seqs_per_tenant") = 0,
          nb::arg("ageing_steps") = 1024, nb::arg("shared_prompt_tokens") = 0,
          "groups: (num_blocks, window) of every KV group; window 0 keeps all positions.")
      .def(
          "check",
          [](const Scheduler& self, std::vector<SeqId> seqs, std::vector<int32_t> prompt, int32_t max_new_tokens) {
            const auto refusal =
                self.check(make_spec(0, std::move(seqs), std::move(prompt), 0, 0, max_new_tokens, false));
            return refusal ? nb::object(refusal_to_python(*refusal)) : nb::object(nb::none());
          },
          nb::arg("seqs"), nb::arg("prompt"), nb::arg("max_new_tokens") = 1,
          "None, or (code, param, message, value, limit) of what can never be served.")
      .def(
          "add",
          [](Scheduler& self, RequestId id, std::vector<SeqId> seqs, std::vector<int32_t> prompt, uint64_t ns,
             int32_t priority, int32_t max_new_tokens, bool prompt_logits, SeqId source, uint64_t tenant,
             int32_t shared_tokens, bool lockstep) {
            self.add(make_spec(id, std::move(seqs), std::move(prompt), ns, priority, max_new_tokens, prompt_logits,
                               source, tenant, shared_tokens, lockstep));
          },
          nb::arg("id"), nb::arg("seqs"), nb::arg("prompt"), nb::kw_only(), nb::arg("namespace") = 0,
          nb::arg("priority") = 0, nb::arg("max_new_tokens") = 1, nb::arg("prompt_logits") = false,
          nb::arg("source") = 0, nb::arg("tenant") = 0, nb::arg("shared_tokens") = 0, nb::arg("lockstep") = false)
      .def(
          "tokens",
          [](const Scheduler& self, SeqId id) {
            const auto tokens = self.tokens(id);
            return std::vector<int32_t>(tokens.begin(), tokens.end());
          },
          nb::arg("seq"), "Prompt and committed output of a sequence.")
      .def("cancel", &Scheduler::cancel, nb::arg("id"))
      .def("has_work", &Scheduler::has_work)
      .def(
          "plan", [](Scheduler& self) { return plan_to_python(self.plan()); },
          nb::sig("def plan(self) -> dict[str, typing.Any] | None"),
          "The next step as a dict of lists, or None when nothing can be planned now.")
      .def("commit", &commit, nb::arg("step"), nb::arg("outcomes"), nb::arg("faults") = std::vector<SeqId>{},
           "outcomes: (parent, child, token, finished).")
      .def("rollback", &Scheduler::rollback, nb::arg("step"))
      .def("take_admissions",
           [](Scheduler& self) {
             nb::list out;
             for (const Admission& a : self.take_admissions()) out.append(nb::make_tuple(a.id, a.cached_tokens));
             return out;
           })
      .def("take_failures",
           [](Scheduler& self) {
             nb::list out;
             for (const RequestFailure& f : self.take_failures())
               out.append(nb::make_tuple(f.id, refusal_to_python(f.why)));
             return out;
           })
      .def(
          "stats", [](const Scheduler& self) { return stats_to_python(self.stats()); },
          nb::sig("def stats(self) -> dict[str, typing.Any]"))
      .def(
          "snapshot", [](const Scheduler& self) { return snapshot_dict(self.snapshot()); },
          nb::sig("def snapshot(self) -> dict[str, typing.Any]"),
          "What the cache holds, block by block, and why each waiting request waits.")
      .def(
          "decisions", [](const Scheduler& self) { return decisions_list(*self.decisions()); },
          nb::sig("def decisions(self) -> list[dict[str, typing.Any]]"),
          "The last events and decisions, oldest first: integers and names, no token of a prompt.")
      .def("limit_steps", &Scheduler::limit_steps, nb::arg("tokens"), nb::arg("chunk"),
           "Later steps hold at most so many tokens, and of one prompt at most `chunk`; 0: as configured.")
      .def("audit", &Scheduler::audit)
      .def("time_steps", &time_steps, nb::arg("steps"),
           "Runs steps without leaving C++; the median nanoseconds of plan and commit together.");
}

}  // namespace octavo
