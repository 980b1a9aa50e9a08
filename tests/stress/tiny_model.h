#pragma once
#include <memory>

#include "model/config.h"
#include "model/weights.h"
#include "text/token_table.h"

// A random model of two layers: what it says does not matter.
octavo::ModelConfig tiny_config();
std::shared_ptr<octavo::WeightFiles> tiny_weights(const octavo::ModelConfig& config);
octavo::TokenTable tiny_table(int vocab);
