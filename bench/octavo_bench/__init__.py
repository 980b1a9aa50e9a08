"""Octavo's benchmarks: a load client for any OpenAI-compatible server, kernel and step timing, the peers side by side."""
