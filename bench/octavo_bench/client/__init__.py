"""An asynchronous load client for OpenAI-compatible servers.

A load is a list of requests with the times at which they are due, fixed before the run starts: a slow server never
slows the schedule down, so its queueing shows up in the figures instead of vanishing (coordinated omission).
"""

from octavo_bench.client.load import run_load
from octavo_bench.client.records import Load, Record, Shot
from octavo_bench.client.summary import Summary, percentile, summarize

__all__ = ["Load", "Record", "Shot", "Summary", "percentile", "run_load", "summarize"]
