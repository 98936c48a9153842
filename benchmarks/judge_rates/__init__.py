"""What `python -m benchmarks.judge_rate` is made of: a server that enforces limits, and workflows that ask it."""
