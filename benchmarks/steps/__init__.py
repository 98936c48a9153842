"""The arms of `python -m benchmarks.step`."""
