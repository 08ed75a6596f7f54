"""Patching: which parts of a model carry the difference between two inputs over to the answer."""

COMMANDS = {"patch": ("More: train and measure", 7)}
"""Commands by name: the group in `--help` and the position in it. The function is in `command`."""
