"""Parts of `python -m benchmarks.journal`."""
