"""Over training: when during a training each property appears."""

COMMANDS = {"over_training": ("More: train and measure", 7)}
"""Commands by name: the group in `--help` and the position in it. The functions are in `command`."""
