#include <nanobind/ndarray.h>

#include <string_view>
#include <vector>

#include "bind.h"
#include "text/piece_merges.h"

namespace octavo {

namespace {

using Scores = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// The list keeps the texts that the views are of.
std::vector<std::string_view> views(const nb::list& pieces) {
  std::vector<std::string_view> out;
  out.reserve(pieces.size());
  for (const nb::handle piece : pieces) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(piece.ptr(), &size);
    if (!text) throw nb::python_error();
    out.emplace_back(text, static_cast<size_t>(size));
  }
  return out;
}

nb::list merge_table(const nb::list& pieces, Scores scores) {
  const std::vector<std::string_view> texts = views(pieces);
  std::vector<PieceMerge> merges;
  {
    nb::gil_scoped_release release;
    merges = piece_merges(texts, {scores.data(), scores.shape(0)});
  }
  nb::list out;
  for (const PieceMerge& merge : merges) out.append(nb::make_tuple(pieces[merge.left], pieces[merge.right]));
  return out;
}

}  // namespace

void bind_pieces(nb::module_& m) {
  m.def("piece_merges", merge_table, nb::arg("pieces"), nb::arg("scores"),
        "The merges that a vocabulary with scores implies, the best scored union first; an empty piece takes no "
        "part.");
}

}  // namespace octavo
