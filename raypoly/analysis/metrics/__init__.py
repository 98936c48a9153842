"""Evaluation metrics, and the sinks of each step's numbers."""
