"""Pruning: which heads a model can lose, by learned gates and by greedy selection."""

COMMANDS = {"prune": ("More: train and measure", 6)}
"""By name: group in `--help`, and place in it. The functions are in `command`."""
