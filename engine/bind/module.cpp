#include <nanobind/nanobind.h>

namespace nb = nanobind;

NB_MODULE(_engine, m) { m.doc() = "The octavo engine."; }
