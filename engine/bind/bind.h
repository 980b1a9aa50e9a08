#pragma once
#include <nanobind/nanobind.h>

namespace nb = nanobind;

// One function per topic, each in its own file; module.cpp calls them in order of dependency.
namespace octavo {

void bind_errors(nb::module_& m);
void bind_heap(nb::module_& m);
void bind_config(nb::module_& m);
void bind_model(nb::module_& m);
void bind_text(nb::module_& m);
void bind_pieces(nb::module_& m);
void bind_grammar(nb::module_& m);
void bind_sample(nb::module_& m);
void bind_backend_ops(nb::module_& m);
void bind_linear(nb::module_& m);
void bind_row_ops(nb::module_& m);
void bind_model_runner(nb::module_& m);
void bind_ops(nb::module_& m);
void bind_paged_attention(nb::module_& m);
void bind_cache(nb::module_& m);
void bind_sched(nb::module_& m);
void bind_channel(nb::module_& m);
void bind_engine(nb::module_& m);
void bind_hash_engine(nb::module_& m);
void bind_device_draws(nb::module_& m);
void bind_device_timing(nb::module_& m);

}  // namespace octavo
