"""Octavo's benchmarks: a load client for OpenAI-compatible servers, kernel timing, the peers side by side."""
