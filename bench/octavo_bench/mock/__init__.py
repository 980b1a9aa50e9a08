"""A server without a model that answers at a pace one sets: what a load client is calibrated with."""

from octavo_bench.mock.pace import Pace
from octavo_bench.mock.server import MODEL, MockServer

__all__ = ["MODEL", "MockServer", "Pace"]
