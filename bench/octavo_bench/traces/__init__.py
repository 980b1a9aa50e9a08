"""Request traces: when requests arrived and how long they were, read from the files that others publish."""

from octavo_bench.traces.read import FORMATS, read_trace
from octavo_bench.traces.request import TraceRequest, lognormal_lengths

__all__ = ["FORMATS", "TraceRequest", "lognormal_lengths", "read_trace"]
