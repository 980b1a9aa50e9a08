"""Models to measure with: random weights in the shape of a real model, and a GGUF file in another weight format."""
