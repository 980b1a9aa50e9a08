"""Servers and libraries measured side by side: each runs the same workloads in turn, in one run."""
