"""Parts of `python -m benchmarks.similar`."""
