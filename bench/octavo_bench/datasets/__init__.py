"""What a load asks for: prompts and output lengths, made from a seed or read from a file."""

from octavo_bench.datasets.dataset import NAMES, DatasetOptions, make_shots

__all__ = ["NAMES", "DatasetOptions", "make_shots"]
