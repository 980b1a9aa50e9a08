#pragma once
#include <memory>

#include "model/config.h"
#include "model/weights.h"
#include "text/token_table.h"

// A random model of two layers: what it says does not matter.
octavo::ModelConfig tiny_config(int window);  // of its second layer; 0: none
// Matrices in `format`: f32, bf16 or q8_0.
std::shared_ptr<octavo::WeightFiles> tiny_weights(const octavo::ModelConfig& config, octavo::WeightFormat format);
octavo::TokenTable tiny_table(int vocab);
