"""The algorithmic features of a program, read from its live code."""
