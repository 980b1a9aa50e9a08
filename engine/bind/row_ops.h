#pragma once
#include <string>

#include "ops/params.h"

namespace octavo {

Prologue parse_prologue(const std::string& name);

}  // namespace octavo
