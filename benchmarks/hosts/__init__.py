"""Hosts that misbehave, and what a run on them does: `python -m benchmarks.hosts`."""
