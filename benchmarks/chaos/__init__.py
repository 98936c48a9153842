"""Kills and what must not come of them: `python -m benchmarks.chaos`."""
