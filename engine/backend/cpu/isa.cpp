#include "backend/cpu/isa.h"

#include "base/errors.h"
#include "base/format.h"

namespace octavo {

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return "baseline";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512Vnni:
      return "avx512vnni";
    case Isa::kAvx512Bf16:
      return "avx512bf16";
  }
  return "?";
}

Isa choose_isa(const std::string& requested) {
  const Isa best = detect_isa();
  if (requested.empty()) return best;
  for (Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512Vnni, Isa::kAvx512Bf16}) {
    if (requested == isa_name(isa) && isa <= best) return isa;
  }
  throw Error(
      ErrorCode::kUnsupported, "isa",
      cat("isa \"", requested, "\" is no instruction set of this machine, whose best is \"", isa_name(best), "\""));
}

}  // namespace octavo
