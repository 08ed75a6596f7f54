"""Pruning: which heads a model can lose, by learned gates and greedy choices."""

COMMANDS = {"prune": ("Train and measure", 9)}
"""By name: group in `--help`, and place in it. The functions are in `command`."""
