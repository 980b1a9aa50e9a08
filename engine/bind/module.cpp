#include "bind.h"

NB_MODULE(_engine, m) {
  m.doc() = "The octavo engine: native paged attention, scheduler and runtime. Use it through the package `octavo`.";
  octavo::bind_errors(m);
  octavo::bind_heap(m);
  octavo::bind_config(m);
  octavo::bind_model(m);
  octavo::bind_text(m);
  octavo::bind_pieces(m);
  octavo::bind_grammar(m);
  octavo::bind_sample(m);
  octavo::bind_backend_ops(m);
  octavo::bind_linear(m);
  octavo::bind_row_ops(m);
  octavo::bind_model_runner(m);
  octavo::bind_ops(m);
  octavo::bind_paged_attention(m);
  octavo::bind_cache(m);
  octavo::bind_sched(m);
  octavo::bind_channel(m);
  octavo::bind_engine(m);
  octavo::bind_hash_engine(m);
  octavo::bind_device_draws(m);
  octavo::bind_device_timing(m);
}
