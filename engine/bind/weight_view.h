#pragma once
#include <string>

#include "bind.h"
#include "model/decoder.h"

namespace octavo {

// A weight of the decoder where it lies, read-only, without a copy; `owner` (the Python object that holds the decoder)
// lives as long as the view. A norm or bias is [n]. A dense matrix is [panels, 2, 8, k]: its rows in panels of 16, of
// which those past its own are padding or its neighbour's; flattening the first three dimensions copies it to [n, k].
// Error(kUnsupported, name, ...) for a quantized matrix.
nb::object weight_view(const Decoder& decoder, const std::string& name, nb::handle owner);

}  // namespace octavo
