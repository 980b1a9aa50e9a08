#pragma once
// Drawing tokens where the logits lie; the rules of launches.h hold.
#include "backend/cuda/launches.h"
#include "ops/draw_params.h"

namespace octavo::cuda {

void draw(const Launch& launch, const DrawParams& p);
void take_tokens(const Launch& launch, const TakeTokensParams& p);

}  // namespace octavo::cuda
