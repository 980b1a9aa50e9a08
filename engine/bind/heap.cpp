#include "base/heap.h"

#include "bind.h"

namespace octavo {

void bind_heap(nb::module_& m) {
  m.def("limit_heap", &limit_heap,
        "Makes the C library's allocator hold little of what was freed, in the whole process. For a server that runs "
        "for months; to be called before many threads are there. Does nothing where the library is not glibc.");
  m.def("trim_heap", &trim_heap, nb::call_guard<nb::gil_scoped_release>(),
        "Gives the system what the allocator holds free.");
}

}  // namespace octavo
