"""Octavo's benchmarks: load tests of OpenAI-compatible servers, kernel timing, the peers side by side."""
