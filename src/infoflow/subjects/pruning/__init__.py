"""Pruning: which heads a model can lose, by learned gates and by greedy selection."""

COMMANDS = {"prune": ("More: train and measure", 6)}
"""Commands by name: the group in `--help` and the position in it. The functions are in `command`."""
