"""Patching: which parts of a model carry the difference between two inputs over to the answer."""

COMMANDS = {"patch": ("More: train and measure", 7)}
"""By name: group in `--help`, and place in it. The function is in `command`."""
