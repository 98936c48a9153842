"""Measures of rollouts, programs and plans, and counts of an evaluation by problem."""
