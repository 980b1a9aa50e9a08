"""An asynchronous load client for OpenAI-compatible servers.

A load is a list of requests with the times at which they are due, fixed before the run starts: a slow server never
slows the schedule down, so its queueing shows up in the figures instead of vanishing (coordinated omission).
"""

from octavo_bench.client.load import LoadRun, run_load
from octavo_bench.client.records import Load, Record, Shot
from octavo_bench.client.summary import Distribution, Summary, Window, summarize
from octavo_bench.client.target import Target

__all__ = [
    "Distribution",
    "Load",
    "LoadRun",
    "Record",
    "Shot",
    "Summary",
    "Target",
    "Window",
    "run_load",
    "summarize",
]
