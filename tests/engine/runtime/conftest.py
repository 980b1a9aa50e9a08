"""Fixtures of the runtime tests."""

from conftest_runtime import engine

__all__ = ["engine"]
