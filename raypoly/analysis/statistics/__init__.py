"""Intervals, tests of differences, and power. Simulated by `python -m benchmarks.coverage`; reads no file."""
