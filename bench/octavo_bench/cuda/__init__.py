"""The whole check of the CUDA backend on one GPU: correctness against torch first, then figures against its memory."""
