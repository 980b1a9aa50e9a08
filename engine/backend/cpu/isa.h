#pragma once
#include <string>

namespace octavo {

// Instruction sets the CPU kernels are written for, weakest first.
enum class Isa { kBaseline, kAvx2, kAvx512Vnni, kAvx512Bf16 };

const char* isa_name(Isa isa);                 // "baseline", "avx2", "avx512vnni", "avx512bf16"
Isa detect_isa();                              // the best one of this machine
Isa choose_isa(const std::string& requested);  // "": detect; Error(kUnsupported, "isa", ...) where the machine lacks it

}  // namespace octavo
