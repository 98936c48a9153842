"""What numbers of an experiment show: intervals, tests of differences, and power.

Choices were made by simulation, which `python -m benchmarks.coverage` repeats. NumPy and SciPy alone; no file is read.
"""
