"""Nodes that come and go, and what must not come of it: `python -m benchmarks.churn`."""
