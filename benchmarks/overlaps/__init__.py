"""What `python -m benchmarks.overlap` is made of: service times, services that take them, a clock, versions."""
