"""Pruning: which heads a model can lose, by learned gates and greedy choices."""

COMMANDS = {"prune": ("More: train and measure", 6)}
"""By name: group in `--help`, and place in it. The functions are in `command`."""
